//! Every stage kind: one row for each stage crate.

use contract::Registry;

pub const REGISTRY: Registry = Registry(&[video::STAGES, inference::STAGES, broker::STAGES]);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn kinds_are_unique_and_described() {
        let kinds: Vec<_> = REGISTRY.entries().map(|entry| entry.kind).collect();
        assert_eq!(kinds.iter().collect::<BTreeSet<_>>().len(), kinds.len());
        assert!(REGISTRY.entries().all(|entry| !entry.about.is_empty()));
        assert!(["decode", "infer", "audit"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    }
}
