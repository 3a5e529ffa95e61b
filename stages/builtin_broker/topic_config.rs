//! The topic settings the broker honours: names, defaults, checks, and how they read back.

use std::collections::BTreeMap;

use crate::options::BrokerOptions;

/// Parsed settings of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicSettings {
    pub max_message_bytes: u32,
    pub segment_bytes: u64,
    /// -1: keep everything.
    pub retention_bytes: i64,
    /// -1: keep forever.
    pub retention_ms: i64,
    pub flush_messages: u64,
    pub flush_ms: u64,
}

/// A setting as DescribeConfigs tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingRow {
    pub name: &'static str,
    pub value: String,
    pub kind: SettingKind,
    /// Set when the topic was created, not taken from the broker.
    pub own: bool,
}

/// Types as the protocol numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub(crate) enum SettingKind {
    Text = 2,
    Int = 3,
    Long = 5,
    List = 7,
}

/// "Never" of the flush settings, as it is written in topic settings.
const NEVER: u64 = i64::MAX as u64;
/// Settings with one possible value: what the broker does anyway.
const FIXED: &[(&str, &str, SettingKind)] = &[
    ("cleanup.policy", "delete", SettingKind::List),
    ("compression.type", "producer", SettingKind::Text),
    ("message.timestamp.type", "CreateTime", SettingKind::Text),
];

/// Check settings against the options' defaults. The error text names the setting and what is allowed.
pub(crate) fn parse(
    given: &BTreeMap<String, String>,
    replication: u16,
    options: &BrokerOptions,
) -> Result<TopicSettings, String> {
    let mut settings = TopicSettings {
        max_message_bytes: options.max_message_bytes,
        segment_bytes: options.segment_bytes,
        retention_bytes: options.retention_bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
        retention_ms: -1,
        flush_messages: options.flush.every_messages.unwrap_or(NEVER),
        flush_ms: options.flush.every_ms.unwrap_or(NEVER),
    };
    for (name, value) in given {
        match name.as_str() {
            "max.message.bytes" => settings.max_message_bytes = number(name, value, 0, u32::MAX >> 1)?,
            // The smallest segment a broker of version 4 accepts is larger; here small ones help tests.
            "segment.bytes" => settings.segment_bytes = number(name, value, 1_024, i32::MAX as u64)?,
            "retention.bytes" => settings.retention_bytes = number(name, value, -1, i64::MAX)?,
            "retention.ms" => settings.retention_ms = number(name, value, -1, i64::MAX)?,
            "flush.messages" => settings.flush_messages = number(name, value, 1, NEVER)?,
            "flush.ms" => settings.flush_ms = number(name, value, 0, NEVER)?,
            // Every replica is written before the acknowledgement, so any number up to all holds.
            "min.insync.replicas" => drop(number(name, value, 1, replication)?),
            _ => check_fixed(name, value)?,
        }
    }
    Ok(settings)
}

fn check_fixed(name: &str, value: &str) -> Result<(), String> {
    match FIXED.iter().find(|(fixed, _, _)| *fixed == name) {
        Some((_, only, _)) if *only == value => Ok(()),
        Some((_, only, _)) => Err(format!("{name}={value}: the built-in broker only has {only}")),
        None => Err(format!("{name}: the built-in broker does not have this setting")),
    }
}

fn number<T>(name: &str, value: &str, least: T, most: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    match value.trim().parse::<T>() {
        Ok(parsed) if parsed >= least && parsed <= most => Ok(parsed),
        _ => Err(format!("{name}={value}: a whole number from {least} to {most} is needed")),
    }
}

/// All settings of a topic, for DescribeConfigs.
pub(crate) fn rows(settings: &TopicSettings, given: &BTreeMap<String, String>) -> Vec<SettingRow> {
    let row = |name: &'static str, value: String, kind| SettingRow { name, value, kind, own: given.contains_key(name) };
    let in_sync = given.get("min.insync.replicas").cloned().unwrap_or_else(|| "1".to_owned());
    let mut rows: Vec<SettingRow> =
        FIXED.iter().map(|(name, value, kind)| row(name, (*value).to_owned(), *kind)).collect();
    rows.push(row("flush.messages", settings.flush_messages.to_string(), SettingKind::Long));
    rows.push(row("flush.ms", settings.flush_ms.to_string(), SettingKind::Long));
    rows.push(row("max.message.bytes", settings.max_message_bytes.to_string(), SettingKind::Int));
    rows.push(row("min.insync.replicas", in_sync, SettingKind::Int));
    rows.push(row("retention.bytes", settings.retention_bytes.to_string(), SettingKind::Long));
    rows.push(row("retention.ms", settings.retention_ms.to_string(), SettingKind::Long));
    rows.push(row("segment.bytes", settings.segment_bytes.to_string(), SettingKind::Int));
    rows.sort_by_key(|row| row.name);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_was_set_reads_back_and_the_rest_is_default() {
        let given =
            given(&[("max.message.bytes", "8388608"), ("retention.bytes", "1000"), ("min.insync.replicas", "2")]);
        let settings = parse(&given, 3, &BrokerOptions::default()).unwrap();
        let rows = rows(&settings, &given);
        let value =
            |name: &str| rows.iter().find(|row| row.name == name).map(|row| (row.value.clone(), row.own)).unwrap();
        assert_eq!(value("max.message.bytes"), ("8388608".to_owned(), true));
        assert_eq!(value("retention.bytes"), ("1000".to_owned(), true));
        assert_eq!(value("min.insync.replicas"), ("2".to_owned(), true));
        assert_eq!(value("segment.bytes"), ((1_u64 << 30).to_string(), false));
        assert_eq!(value("flush.messages"), (i64::MAX.to_string(), false));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        for (name, value) in [
            ("cleanup.policy", "compact"),
            ("message.timestamp.type", "LogAppendTime"),
            ("segment.bytes", "12"),
            ("retention.bytes", "lots"),
            ("min.insync.replicas", "4"),
            ("unclean.leader.election.enable", "true"),
        ] {
            let problem = parse(&given(&[(name, value)]), 3, &BrokerOptions::default()).unwrap_err();
            assert!(problem.starts_with(name), "{problem}");
        }
    }
}
