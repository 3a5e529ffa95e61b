//! Load a classifier and run batches on it: one ONNX Runtime session, its threads named, counted and never spinning.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread::{Builder, JoinHandle},
};

use ort::{
    environment::ThreadManager,
    session::{Session, builder::GraphOptimizationLevel},
    value::{Outlet, TensorElementType, TensorRef, ValueType},
};
use sha2::{Digest, Sha256};

use crate::{
    convert::{file_error, hex},
    error::{InferenceError, Result},
    runtime::Runtime,
    signature::{Batch, Declared, Element, Head, Layout, Overrides, Port, Signature, recognise},
};

/// Where the model comes from.
#[derive(Debug, Clone)]
pub enum Source {
    File(PathBuf),
    /// A model that is part of the program, and the name it goes by.
    Embedded(&'static str, &'static [u8]),
}

impl Source {
    /// The path, or the name in angle brackets for an embedded model.
    pub fn place(&self) -> PathBuf {
        match self {
            Source::File(path) => path.clone(),
            Source::Embedded(name, _) => PathBuf::from(format!("<{name}>")),
        }
    }
}

/// What one run gave, image after image.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// The best class of each image, in the model's own numbering.
    Best(Vec<i64>),
    /// `classes` scores for each image.
    Scores { classes: usize, values: Vec<f32> },
}

impl Output {
    /// Number of images the output is for.
    pub fn images(&self) -> usize {
        match self {
            Output::Best(best) => best.len(),
            Output::Scores { classes, values } => values.len() / classes,
        }
    }

    /// Append what a further run gave.
    fn extend(&mut self, more: Output) -> Result<(), String> {
        match (self, more) {
            (Output::Best(all), Output::Best(more)) => all.extend(more),
            (Output::Scores { classes, values }, Output::Scores { classes: more_classes, values: more })
                if *classes == more_classes =>
            {
                values.extend(more);
            }
            _ => return Err("two runs gave outputs of different shapes".to_owned()),
        }
        Ok(())
    }
}

/// A loaded classifier. Running needs `&mut self`: one session, one run at a time.
pub struct Model {
    session: Session,
    signature: Signature,
    place: PathBuf,
    sha256: String,
    /// Input of a padded last run, when the model takes a fixed number of images.
    padded: Vec<f32>,
}

impl Model {
    /// Load, recognise, and run once on black pictures, so that a file whose declarations are untrue fails here.
    pub fn load(runtime: &Runtime, source: &Source, overrides: &Overrides, threads: usize) -> Result<Self> {
        let place = source.place();
        let bytes = match source {
            Source::File(path) => &fs::read(path).map_err(|source| file_error("read model", path, source))?,
            Source::Embedded(_, bytes) => *bytes,
        };
        let session = open_session(runtime, bytes, threads)
            .map_err(|error| InferenceError::Load { path: place.clone(), problem: error.to_string() })?;
        let declared = declarations(&session);
        let signature = recognise(&declared, overrides).map_err(|problem| InferenceError::Unrecognised {
            path: place.clone(),
            problem,
            listing: declared.listing(),
        })?;
        let sha256 = hex(&Sha256::digest(bytes));
        let mut model = Self { session, signature, place, sha256, padded: Vec::new() };
        model.probe()?;
        Ok(model)
    }

    /// How the model is fed and read.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Hash of the model file.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Floats of one image.
    pub fn image_len(&self) -> usize {
        self.signature.crop.pixels() as usize * 3
    }

    /// Run on whole images, one after the other in `input`.
    pub fn run(&mut self, input: &[f32]) -> Result<Output> {
        let images = input.len() / self.image_len();
        self.try_run(input).map_err(|problem| InferenceError::Run { path: self.place.clone(), images, problem })
    }

    fn try_run(&mut self, input: &[f32]) -> Result<Output, String> {
        let image_len = self.image_len();
        if input.is_empty() || !input.len().is_multiple_of(image_len) {
            return Err(format!("{} floats are not whole images of {image_len}", input.len()));
        }
        let Batch::Fixed(fixed) = self.signature.batch else {
            return run_session(&mut self.session, &self.signature, input);
        };
        let mut output: Option<Output> = None;
        for chunk in input.chunks(fixed * image_len) {
            let part = self.run_fixed(chunk, fixed * image_len)?;
            match &mut output {
                Some(output) => output.extend(part)?,
                None => output = Some(part),
            }
        }
        output.ok_or_else(|| "nothing was run".to_owned())
    }

    /// One run of exactly `full` floats: a short chunk is padded with black, and the padding's results are dropped.
    fn run_fixed(&mut self, chunk: &[f32], full: usize) -> Result<Output, String> {
        if chunk.len() == full {
            return run_session(&mut self.session, &self.signature, chunk);
        }
        self.padded.clear();
        self.padded.extend_from_slice(chunk);
        self.padded.resize(full, 0.0);
        let wanted = chunk.len() / self.image_len();
        let mut output = run_session(&mut self.session, &self.signature, &self.padded)?;
        match &mut output {
            Output::Best(best) => best.truncate(wanted),
            Output::Scores { classes, values } => values.truncate(wanted * *classes),
        }
        Ok(output)
    }

    fn probe(&mut self) -> Result<()> {
        let images = match self.signature.batch {
            Batch::Free => 1,
            Batch::Fixed(fixed) => fixed,
        };
        self.run(&vec![0.0; images * self.image_len()]).map(|_| ())
    }
}

/// Threads of the session: named, so that /proc shows who works.
struct NamedThreads(AtomicUsize);

impl ThreadManager for NamedThreads {
    type Thread = JoinHandle<()>;

    fn create(&self, work: impl FnOnce() + Send + 'static) -> ort::Result<Self::Thread> {
        let name = format!("infer-ort-{}", self.0.fetch_add(1, Ordering::Relaxed));
        Builder::new().name(name).spawn(work).map_err(|error| ort::Error::new(error.to_string()))
    }

    fn join(thread: Self::Thread) -> ort::Result<()> {
        thread.join().map_err(|_| ort::Error::new("an inference thread panicked"))
    }
}

/// The calling thread counts as one of `threads`. Spinning is off: a thread that burns CPU while it waits would take it
/// from the broker and the decoders, and would show as work that was not done.
fn open_session(runtime: &Runtime, bytes: &[u8], threads: usize) -> ort::Result<Session> {
    Session::builder(runtime.environment())?
        .with_intra_threads(threads)?
        .with_inter_threads(1)?
        .with_intra_op_spinning(false)?
        .with_inter_op_spinning(false)?
        .with_thread_manager(NamedThreads(AtomicUsize::new(0)))?
        .with_optimization_level(GraphOptimizationLevel::All)?
        .commit_from_memory(bytes)
}

fn declarations(session: &Session) -> Declared {
    let mut declared = Declared {
        inputs: session.inputs().iter().map(port).collect(),
        outputs: session.outputs().iter().map(port).collect(),
        producer: String::new(),
        metadata: BTreeMap::new(),
    };
    if let Ok(metadata) = session.metadata() {
        declared.producer = metadata.producer().unwrap_or_default();
        let keys = metadata.custom_keys().unwrap_or_default();
        declared.metadata = keys.into_iter().filter_map(|key| Some((key.clone(), metadata.custom(&key)?))).collect();
    }
    declared
}

fn port(outlet: &Outlet) -> Port {
    let (element, shape) = match outlet.dtype() {
        ValueType::Tensor { ty: TensorElementType::Float32, shape, .. } => (Element::Float32, shape.to_vec()),
        ValueType::Tensor { ty: TensorElementType::Int64, shape, .. } => (Element::Int64, shape.to_vec()),
        ValueType::Tensor { ty, shape, .. } => (Element::Other(ty.to_string()), shape.to_vec()),
        other => (Element::Other(other.to_string()), Vec::new()),
    };
    Port { name: outlet.name().to_owned(), element, shape }
}

/// One run of the session on `input`, checked against what the signature promises.
fn run_session(session: &mut Session, signature: &Signature, input: &[f32]) -> Result<Output, String> {
    let (width, height) = (signature.crop.width_px as usize, signature.crop.height_px as usize);
    let images = input.len() / (width * height * 3);
    let shape = match signature.layout {
        Layout::ChannelsFirst => [images, 3, height, width],
        Layout::ChannelsLast => [images, height, width, 3],
    };
    let tensor = TensorRef::from_array_view((shape, input)).map_err(|error| error.to_string())?;
    let outputs = session.run(ort::inputs![signature.input.as_str() => tensor]).map_err(|error| error.to_string())?;
    let value = outputs.get(&signature.output).ok_or_else(|| format!("output `{}` is missing", signature.output))?;
    let wrong = |shape: &[i64]| format!("output `{}` has shape {shape:?} for {images} images", signature.output);
    match signature.head {
        Head::BestClass => {
            let (shape, best) = value.try_extract_tensor::<i64>().map_err(|error| error.to_string())?;
            if best.len() != images { Err(wrong(shape)) } else { Ok(Output::Best(best.to_vec())) }
        }
        Head::Scores => {
            let (shape, values) = value.try_extract_tensor::<f32>().map_err(|error| error.to_string())?;
            let classes = values.len() / images;
            if shape.first() != Some(&(images as i64)) || classes < 2 {
                return Err(wrong(shape));
            }
            Ok(Output::Scores { classes, values: values.to_vec() })
        }
    }
}

/// Check that a model file exists, with a message that says how to get it.
pub fn require_file(path: &Path, remedy: &str) -> Result<()> {
    if path.is_file() {
        return Ok(());
    }
    Err(InferenceError::NoModel { path: path.to_owned(), remedy: remedy.to_owned() })
}
