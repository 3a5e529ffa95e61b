//! Classify frames of a topic: select, preprocess, batch, run, publish the best classes.
//!
//! Threads: the stage's own takes frames in and selects, `infer-preprocess-N` decode and resize (a stream always on the
//! same one, so that it stays in order), `infer-run` runs the model and completes receipts, `infer-ort-N` belong to the
//! runtime. Metrics: `frames_inferred`, `frames_not_selected`, `frames_inference_dropped`, `frames_inference_failed`,
//! and the steps `preprocess`, `batch_wait`, `infer`, `end_to_end`.

use std::{num::NonZeroU32, time::Duration};

use contract::{Cx, Demand, Io, Ports, Span, Stage, StageError, error::ErrorCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    catalogue::{self, assets_dir},
    error::InferenceError,
    model::{Model, Source, require_file},
    preprocess::Target,
    preset::Preset,
    results,
    runtime::{Runtime, find_library},
    select::{Rule, Select},
    signature::{Batch, Layout, Overrides, Weights},
    steps::{self, Plan},
};

/// `config:` of kind `infer`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `lite0`, `squeezenet`, `resnet50`, `resnet50-seeded`, or the path of an .onnx file.
    pub model: String,
    /// Preprocessing. Default: what the model is known to need; an unknown model must name it.
    #[serde(default)]
    pub preset: Option<Preset>,
    /// Input of the model. Default: its first.
    #[serde(default)]
    pub input: Option<String>,
    /// Output of the model. Default: a class number, else scores of 1000 or 1001 classes.
    #[serde(default)]
    pub output: Option<String>,
    /// Axis of the colours. Default: the axis that is 3.
    #[serde(default)]
    pub layout: Option<Layout>,
    /// Added to the model's class numbers. Default: -1 for 1001 classes, else 0.
    #[serde(default)]
    pub label_offset: Option<i32>,
    /// Where the weights come from, as results say it. Default: what the file says, else `official`.
    #[serde(default)]
    pub weights: Option<Weights>,
    /// Which frames are inferred. Default: all.
    #[serde(default)]
    pub select: Select,
    /// How images are put together for one run.
    #[serde(default)]
    pub batch: BatchConfig,
    /// Threads of one run. Default 1.
    #[serde(default = "one")]
    pub threads: u32,
    /// Threads that decode and resize. Default 1.
    #[serde(default = "one")]
    pub preprocess_threads: u32,
    /// Classes in each result. Default 5.
    #[serde(default = "five")]
    pub top_k: u32,
    /// Full batches run before the stage is ready. Default 3.
    #[serde(default = "three")]
    pub warmup: u32,
    /// Let the JPEG decoder reduce large frames by 2, 4 or 8 on its way. Default true; false resizes the full picture.
    #[serde(default = "yes")]
    pub jpeg_scaling: bool,
    /// Age past due at which a selected frame is dropped instead of inferred. Default: never.
    #[serde(default)]
    pub drop_older_than: Option<Span>,
}

/// `batch:` of the stage.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchConfig {
    /// Images of one run at most. Default 1.
    pub max: u32,
    /// Longest time an image waits for others. Default 20 ms.
    pub max_wait: Span,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { max: 1, max_wait: Span(Duration::from_millis(20)) }
    }
}

fn one() -> u32 {
    1
}

fn three() -> u32 {
    3
}

fn five() -> u32 {
    5
}

fn yes() -> bool {
    true
}

/// The stage, loaded and warm.
pub struct Infer {
    config: Config,
    rule: Rule,
    weights: Weights,
    target: Target,
    model: Model,
}

impl Stage for Infer {
    type Config = Config;
    const KIND: &'static str = "infer";
    const ABOUT: &'static str = "classify frames of a topic with ONNX Runtime";
    const PORTS: Ports = Ports::Transform;

    fn demand(config: &Config) -> Result<Demand, StageError> {
        let rule = config.check()?;
        let assets = assets_dir();
        let source = catalogue::find(&config.model, &assets).map_err(|problem| config.error(problem))?;
        // What is missing is said here with its remedy, before a broker is started.
        let fail = |error: InferenceError| stage_error(format!("model {}", config.model), &error);
        let mut files = vec![find_library(&assets).map_err(fail)?];
        if let Source::File(path) = &source {
            require_file(path, catalogue::remedy(&config.model)).map_err(fail)?;
            files.push(path.clone());
        }
        let images = config.select.total_per_second();
        let seconds = catalogue::cpu_seconds_per_image(&config.model);
        Ok(Demand {
            streams: config.select.streams.map(NonZeroU32::get),
            frames_per_second: images,
            frame_bytes: Some(results::estimated_bytes(config.top_k)),
            max_frame_bytes: Some(results::max_bytes(config.top_k)),
            cpu_seconds_per_second: images.zip(seconds).map(|(images, seconds)| images * seconds),
            files,
            mode: None,
            notes: config.notes(rule),
        })
    }

    fn open(config: Config, cx: &Cx) -> Result<Self, StageError> {
        let rule = config.check()?;
        let assets = assets_dir();
        let source = catalogue::find(&config.model, &assets).map_err(|problem| config.error(problem))?;
        let place = || format!("model {}", config.model);
        let fail = |error: InferenceError| stage_error(place(), &error);
        if let Source::File(path) = &source {
            require_file(path, catalogue::remedy(&config.model)).map_err(fail)?;
        }
        let runtime = Runtime::load(&assets).map_err(fail)?;
        let mut model = Model::load(&runtime, &source, &config.overrides(), config.threads as usize).map_err(fail)?;
        let black = vec![0.0; model.image_len() * config.batch.max as usize];
        for _ in 0..config.warmup {
            model.run(&black).map_err(fail)?;
        }
        let target = Target::of(model.signature(), config.jpeg_scaling);
        let weights = config.weights.unwrap_or(model.signature().weights);
        let stage = Self { rule, weights, target, model, config };
        stage.state_facts(cx, &runtime);
        Ok(stage)
    }

    fn run(self, io: Io, cx: &Cx) -> Result<(), StageError> {
        let input = io.input.ok_or_else(|| self.config.error("it needs `from`, a topic to read".to_owned()))?;
        let plan = Plan {
            rule: self.rule,
            target: self.target,
            batch_max: self.config.batch.max as usize,
            batch_wait: self.config.batch.max_wait.0,
            preprocess_threads: self.config.preprocess_threads,
            top_k: self.config.top_k as usize,
            drop_older_than_ns: self.config.drop_older_than.map(Span::ns),
            model_name: self.config.model.clone(),
            weights: self.weights,
        };
        steps::run(plan, self.model, input, io.output, cx)
    }
}

impl Infer {
    /// What a result must say to be understood: which weights, which preprocessing, which runtime.
    fn state_facts(&self, cx: &Cx, runtime: &Runtime) {
        let signature = self.model.signature();
        let fact = |name: &str, value: serde_json::Value| cx.recorder.fact(name, value);
        fact("model", self.config.model.as_str().into());
        fact("model_weights", self.weights.name().into());
        fact("model_sha256", self.model.sha256().into());
        fact("preset", signature.preset.name().into());
        fact("batch_max", self.config.batch.max.into());
        fact("threads", self.config.threads.into());
        fact("runtime", runtime.library().display().to_string().into());
        fact("runtime_build", runtime.build_info().into());
        if self.weights == Weights::Seeded {
            fact("predictions", "meaningless: the weights are random, the load is real".into());
        }
        match signature.batch {
            Batch::Free => {}
            Batch::Fixed(1) => fact("model_batch", "fixed at 1: one run for each image".into()),
            Batch::Fixed(fixed) => fact("model_batch", format!("fixed at {fixed}: short batches are padded").into()),
        }
    }
}

impl Config {
    /// Everything serde cannot check.
    fn check(&self) -> Result<Rule, StageError> {
        let limits = [
            ("batch.max", self.batch.max, 256),
            ("threads", self.threads, 256),
            ("preprocess_threads", self.preprocess_threads, 64),
            ("top_k", self.top_k, 1000),
        ];
        for (name, value, most) in limits {
            if !(1..=most).contains(&value) {
                return Err(self.error(format!("`{name}` must be between 1 and {most}, not {value}")));
            }
        }
        if self.warmup > 1000 {
            return Err(self.error(format!("`warmup` must be at most 1000 runs, not {}", self.warmup)));
        }
        self.select.rule().map_err(|problem| self.error(format!("`select`: {problem}")))
    }

    fn error(&self, problem: String) -> StageError {
        StageError::config(format!("infer with model {}", self.model), problem)
    }

    fn overrides(&self) -> Overrides {
        Overrides {
            preset: self.preset,
            input: self.input.clone(),
            output: self.output.clone(),
            layout: self.layout,
            label_offset: self.label_offset,
        }
    }

    fn notes(&self, rule: Rule) -> Vec<String> {
        let selection = match rule {
            Rule::Every(every) => format!("every {every}. frame of each stream"),
            Rule::Rate(rate) => format!("{rate} images/s of each stream"),
        };
        let mut notes = vec![format!("{}, {selection}, batch up to {}", self.model, self.batch.max)];
        if let Some(seconds) = catalogue::cpu_seconds_per_image(&self.model) {
            notes.push(format!("about {} CPU-ms an image", (seconds * 1e3).round()));
        }
        if self.model == "resnet50-seeded" {
            notes.push("seeded weights: predictions are meaningless, the load is real".to_owned());
        }
        notes
    }
}

/// The class of an error decides exit code and verdict row.
fn stage_error(place: String, error: &InferenceError) -> StageError {
    let code = match error {
        InferenceError::File { .. }
        | InferenceError::NoRuntime { .. }
        | InferenceError::Runtime { .. }
        | InferenceError::NoModel { .. } => ErrorCode::Missing,
        InferenceError::Load { .. } | InferenceError::Unrecognised { .. } => ErrorCode::Config,
        _ => ErrorCode::Stage,
    };
    StageError::new(code, place, error.to_string())
}
