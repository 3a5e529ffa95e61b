//! Topics as a client sees them: what a name may be, what the cluster says about one, and whether that is what the scenario
//! expects.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::StageError;
use contract::flow::TopicRef;
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::metadata::Metadata;

const LONGEST_NAME: usize = 249;

/// What is wrong with a topic name, if anything.
pub(crate) fn name_problem(name: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Some(format!("{} characters; 1 to {LONGEST_NAME} are allowed", name.len()));
    }
    if name == "." || name == ".." {
        return Some("`.` and `..` are not allowed".into());
    }
    name.chars().find(|c| !allowed(*c)).map(|c| format!("`{c}` is not in [A-Za-z0-9._-]"))
}

/// One topic of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicView {
    pub(crate) partitions: i32,
    /// Replicas of the partition that has the fewest.
    pub(crate) replication: usize,
    /// Partitions without a leader.
    pub(crate) leaderless: Vec<i32>,
}

/// Everything the cluster says about itself; asks for all topics, because asking for one by name may create it.
pub(crate) fn metadata<C: ClientContext>(
    client: &Client<C>,
    bootstrap: &str,
    timeout: Duration,
) -> Result<Metadata, StageError> {
    client.fetch_metadata(None, timeout).map_err(|error| unreachable_broker(bootstrap, timeout, &error.to_string()))
}

pub(crate) fn unreachable_broker(bootstrap: &str, timeout: Duration, detail: &str) -> StageError {
    let message = format!(
        "no broker answers within {} s ({detail}); check that one listens there and that the address is reachable from here",
        timeout.as_secs_f64()
    );
    StageError::broker(bootstrap, message)
}

/// The topics of a cluster by name.
pub(crate) fn views(metadata: &Metadata) -> BTreeMap<String, TopicView> {
    let view = |topic: &rdkafka::metadata::MetadataTopic| {
        let partitions = topic.partitions();
        let view = TopicView {
            partitions: partitions.len() as i32,
            replication: partitions.iter().map(|p| p.replicas().len()).min().unwrap_or(0),
            leaderless: partitions.iter().filter(|p| p.leader() < 0).map(|p| p.id()).collect(),
        };
        (topic.name().to_owned(), view)
    };
    metadata.topics().iter().filter(|topic| topic.error().is_none()).map(view).collect()
}

/// Checks that each topic exists with the partitions that frames are spread over.
pub(crate) fn expect<C: ClientContext>(
    client: &Client<C>,
    bootstrap: &str,
    topics: &[TopicRef],
    timeout: Duration,
) -> Result<(), StageError> {
    let views = views(&metadata(client, bootstrap, timeout)?);
    for topic in topics {
        let place = format!("topic {}", topic.name);
        match views.get(&topic.name) {
            None => {
                return Err(StageError::broker(place, format!("does not exist on {bootstrap}; create it first")));
            }
            Some(view) if view.partitions != topic.partitions => {
                let message = format!(
                    "has {} partitions on {bootstrap}, the scenario says {}; make the two agree",
                    view.partitions, topic.partitions
                );
                return Err(StageError::broker(place, message));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule_of_the_broker() {
        for good in ["frames", "a", "A.b_c-9", &"x".repeat(249)] {
            assert_eq!(name_problem(good), None, "{good}");
        }
        for bad in ["", ".", "..", "a b", "främe", "a/b", &"x".repeat(250)] {
            assert!(name_problem(bad).is_some(), "{bad}");
        }
    }
}
