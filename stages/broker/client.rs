//! What every Kafka client of this crate has in common: its base settings, log lines through tracing, and errors that name the
//! address and never a secret.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use contract::StageError;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use serde_json::{Map, Value};

/// Settings of one client, in order of their names, so that the record shows them the same way each time.
pub(crate) type Settings = BTreeMap<String, String>;

/// Whether a property's value may never be printed.
pub(crate) fn is_secret(property: &str) -> bool {
    let name = property.to_ascii_lowercase();
    ["password", "secret", "key.pem", "oauthbearer.config", "token"].iter().any(|part| name.contains(part))
}

/// The settings as they go into the record: values of secrets are replaced.
pub(crate) fn shown(settings: &Settings) -> Value {
    let entry = |(name, value): (&String, &String)| {
        let value = if is_secret(name) { "(hidden)".to_owned() } else { value.clone() };
        (name.clone(), Value::String(value))
    };
    Value::Object(settings.iter().map(entry).collect::<Map<_, _>>())
}

/// A client configuration: what the scenario says about security and the like, under the settings that this program's books
/// depend on.
pub(crate) fn settings(bootstrap: &str, client: &Settings, client_id: &str, own: &[(&str, String)]) -> Settings {
    let mut settings = client.clone();
    let mut set = |name: &str, value: &str| settings.insert(name.to_owned(), value.to_owned());
    set("bootstrap.servers", bootstrap);
    set("client.id", client_id);
    set("socket.nagle.disable", "true");
    // The default of 10 s is a tenth of a short run; a broker that comes back is found again within a second.
    set("reconnect.backoff.max.ms", "1000");
    set("log.connection.close", "false");
    for (name, value) in own {
        set(name, value);
    }
    settings
}

pub(crate) fn client_config(settings: &Settings) -> ClientConfig {
    let mut config = ClientConfig::new();
    for (name, value) in settings {
        config.set(name, value);
    }
    config.set_log_level(RDKafkaLogLevel::Warning);
    config
}

/// An error while making a client: the property is named, the value of a secret is not.
pub(crate) fn creation_error(bootstrap: &str, error: &KafkaError) -> StageError {
    match error {
        KafkaError::ClientConfig(_, _, property, _) if is_secret(property) => {
            StageError::config(format!("client property {property}"), "the value is refused by the client library")
        }
        KafkaError::ClientConfig(_, reason, property, _) => {
            StageError::config(format!("client property {property}"), reason.clone())
        }
        other => StageError::broker(bootstrap, format!("no client could be made: {other}")),
    }
}

/// Passes the library's log lines and errors on to tracing; one that repeats is said once.
#[derive(Debug, Default)]
pub(crate) struct ClientLog {
    last: Mutex<String>,
}

impl ClientLog {
    pub(crate) fn line(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
                tracing::error!(target: "kafka_client", facility, "{text}");
            }
            RDKafkaLogLevel::Warning => tracing::warn!(target: "kafka_client", facility, "{text}"),
            _ => tracing::debug!(target: "kafka_client", facility, "{text}"),
        }
    }

    pub(crate) fn error(&self, error: &KafkaError, reason: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == reason {
            tracing::debug!(target: "kafka_client", %error, "{reason}");
        } else {
            tracing::warn!(target: "kafka_client", %error, "{reason}");
            reason.clone_into(&mut last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario_client() -> Settings {
        [("sasl.username", "reader"), ("sasl.password", "hunter2"), ("ssl.key.password", "hunter3")]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn secrets_do_not_reach_the_record() {
        let settings = settings("127.0.0.1:9092", &scenario_client(), "me", &[("acks", "all".into())]);
        assert_eq!(settings["sasl.password"], "hunter2");
        let text = shown(&settings).to_string();
        assert!(!text.contains("hunter"), "{text}");
        assert!(text.contains(r#""sasl.username":"reader""#), "{text}");
        assert!(text.contains(r#""acks":"all""#), "{text}");
    }

    #[test]
    fn a_refused_property_is_named_without_a_secret_value() {
        let mut client = scenario_client();
        client.insert("no.such.property".into(), "5".into());
        let config = client_config(&settings("127.0.0.1:1", &client, "me", &[]));
        let error = config.create::<rdkafka::producer::BaseProducer>().err().unwrap();
        let text = creation_error("127.0.0.1:1", &error).to_string();
        assert!(text.contains("no.such.property"), "{text}");
        assert!(!text.contains("hunter"), "{text}");
    }

    #[test]
    fn own_settings_win_over_those_of_the_scenario() {
        let client: Settings = [("enable.auto.commit".to_owned(), "true".to_owned())].into();
        let settings = settings("h:1", &client, "me", &[("enable.auto.commit", "false".into())]);
        assert_eq!(settings["enable.auto.commit"], "false");
    }
}
