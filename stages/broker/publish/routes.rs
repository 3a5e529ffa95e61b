//! Which topic and partition a stream's frames go to, by the contract's spread, as numbers of lanes.

use contract::flow::{Spread, TopicRef};

/// A lane is one partition of one topic; lanes are numbered over all topics.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    topics: Vec<TopicRef>,
    /// Number of the first lane of each topic.
    first_lane: Vec<usize>,
    spread: Spread,
}

impl Routes {
    pub(crate) fn new(topics: &[TopicRef], spread: Spread) -> Self {
        let mut lanes = 0;
        let mut first = |topic: &TopicRef| {
            let here = lanes;
            lanes += topic.partitions as usize;
            here
        };
        Routes { first_lane: topics.iter().map(&mut first).collect(), topics: topics.to_vec(), spread }
    }

    /// Topic and partition of every lane, in order.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (&TopicRef, i32)> {
        self.topics.iter().flat_map(|topic| (0..topic.partitions).map(move |partition| (topic, partition)))
    }

    /// Whether a frame goes to more than one lane.
    pub(crate) fn copies(&self) -> bool {
        self.spread == Spread::Copy && self.topics.len() > 1
    }

    fn lane(&self, slot: usize, stream: u32) -> usize {
        let partitions = self.topics[slot].partitions;
        self.first_lane[slot] + self.spread.partition_of(stream, self.topics.len(), partitions) as usize
    }

    /// The lane of a stream's first (or only) topic.
    pub(crate) fn lane_of(&self, stream: u32) -> usize {
        self.lane(self.spread.topic_of(stream, self.topics.len()), stream)
    }

    /// Every lane a copied frame goes to, rising.
    pub(crate) fn copies_of(&self, stream: u32) -> impl Iterator<Item = usize> {
        (0..self.topics.len()).map(move |slot| self.lane(slot, stream))
    }

    pub(crate) fn topic_of(&self, stream: u32) -> u16 {
        self.topics[self.spread.topic_of(stream, self.topics.len())].index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn topics(partitions: &[i32]) -> Vec<TopicRef> {
        let topic = |(n, partitions): (usize, &i32)| TopicRef {
            name: format!("t{n}"),
            partitions: *partitions,
            index: n as u16 + 5,
        };
        partitions.iter().enumerate().map(topic).collect()
    }

    #[test]
    fn one_topic_gets_stream_mod_partitions() {
        let routes = Routes::new(&topics(&[3]), Spread::Streams);
        assert_eq!([0, 1, 2, 3, 7].map(|stream| routes.lane_of(stream)), [0, 1, 2, 0, 1]);
        assert_eq!(routes.topic_of(7), 5);
    }

    #[test]
    fn streams_fill_every_partition_of_several_topics_evenly() {
        let routes = Routes::new(&topics(&[6, 6, 6]), Spread::Streams);
        let mut load = BTreeMap::new();
        for stream in 0..180 {
            let lane = routes.lane_of(stream);
            *load.entry(lane).or_insert(0) += 1;
            let (topic, _) = routes.lanes().nth(lane).unwrap();
            assert_eq!(topic.index, routes.topic_of(stream));
            assert_eq!(topic.index, 5 + (stream % 3) as u16);
        }
        assert_eq!(load.len(), 18);
        assert!(load.values().all(|n| *n == 10), "{load:?}");
    }

    #[test]
    fn a_copy_goes_to_its_partition_of_every_topic() {
        let routes = Routes::new(&topics(&[2, 3]), Spread::Copy);
        assert_eq!(routes.copies_of(4).collect::<Vec<_>>(), [0, 2 + 1]);
        assert_eq!(
            routes.lanes().map(|(topic, p)| (topic.index, p)).collect::<Vec<_>>(),
            [(5, 0), (5, 1), (6, 0), (6, 1), (6, 2)]
        );
        assert!(routes.copies() && !Routes::new(&topics(&[2]), Spread::Copy).copies());
    }
}
