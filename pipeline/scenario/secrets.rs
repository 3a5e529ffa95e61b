//! Client properties with their secrets: the scenario names them, the process that needs them looks them up, and nothing
//! writes them down.

use std::collections::BTreeMap;
use std::fs;

use contract::StageError;

use crate::model::BrokerConfig;

/// Longest file taken for a secret; a certificate chain is some kilobytes.
const MAX_SECRET_BYTES: u64 = 1 << 20;

impl BrokerConfig {
    /// The client properties with every `${NAME}` taken from the environment and every `@path` from its file.
    pub fn resolved_client(&self) -> Result<BTreeMap<String, String>, StageError> {
        self.resolve(|name| std::env::var(name).ok())
    }

    fn resolve(&self, environment: impl Fn(&str) -> Option<String>) -> Result<BTreeMap<String, String>, StageError> {
        let resolved = self.client.iter().map(|(key, value)| {
            let found = match named(value) {
                Named::Plain => Ok(value.clone()),
                Named::Variable(name) => environment(name).ok_or_else(|| {
                    format!("environment variable `{name}` is not set: set it, or name a file with \"@path\"")
                }),
                Named::File(path) => read(path),
            };
            let place = format!("broker.client.{key}");
            found.map(|value| (key.clone(), value)).map_err(|message| StageError::missing(place, message))
        });
        resolved.collect()
    }
}

enum Named<'a> {
    Plain,
    Variable(&'a str),
    File(&'a str),
}

fn named(value: &str) -> Named<'_> {
    let variable = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    match (variable, value.strip_prefix('@')) {
        (Some(name), _) => Named::Variable(name),
        (_, Some(path)) => Named::File(path),
        _ => Named::Plain,
    }
}

/// Whether a value is the name of a secret instead of the secret.
pub(crate) fn is_named(value: &str) -> bool {
    !matches!(named(value), Named::Plain)
}

/// Without the line break that editors add at the end.
fn read(path: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read {path}: {error}");
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > MAX_SECRET_BYTES {
        return Err(format!("{path} is {length} bytes long, at most {MAX_SECRET_BYTES} are taken for a secret"));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(pairs: &[(&str, &str)]) -> BrokerConfig {
        let client = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        BrokerConfig { client, ..BrokerConfig::default() }
    }

    #[test]
    fn secrets_come_from_the_environment_and_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, "from file\n").unwrap();
        let at_file = format!("@{}", file.display());
        let broker = broker(&[("a", "${SECRET}"), ("b", &at_file), ("c", "plain $ {value}")]);
        let resolved = broker.resolve(|name| (name == "SECRET").then(|| "from environment".to_owned())).unwrap();
        assert_eq!(resolved.into_values().collect::<Vec<_>>(), ["from environment", "from file", "plain $ {value}"]);
    }

    #[test]
    fn a_secret_that_is_not_there_is_named_with_its_property() {
        let text = |value: &str| broker(&[("sasl.password", value)]).resolve(|_| None).unwrap_err().to_string();
        assert_eq!(
            text("${NOT_SET}"),
            "broker.client.sasl.password: environment variable `NOT_SET` is not set: set it, or name a file with \"@path\""
        );
        assert!(text("@/no/such/file").starts_with("broker.client.sasl.password: cannot read /no/such/file: "));
    }
}
