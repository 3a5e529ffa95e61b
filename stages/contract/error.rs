//! What a stage says when it cannot go on: a code a program can act on, a message a person can act on, and the place.

use serde::{Deserialize, Serialize};

/// Class of a stage failure. It decides the exit code and the verdict row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The scenario asks for something impossible; exit 2.
    Config,
    /// A file, model, library or device that is needed is missing or unreadable; exit 2.
    Missing,
    /// The broker refused or cannot be reached.
    Broker,
    /// Storage is full or failing.
    Storage,
    /// A limit of this tool or host was reached.
    Limit,
    /// The stage itself failed.
    Stage,
}

/// A failure of one stage: `place: message`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{place}: {message}")]
pub struct StageError {
    pub code: ErrorCode,
    /// What is wrong and what would mend it; lower case, no full stop.
    pub message: String,
    /// The file, topic, partition, stream or address it concerns.
    pub place: String,
}

impl StageError {
    pub fn new(code: ErrorCode, place: impl Into<String>, message: impl Into<String>) -> Self {
        StageError { code, message: message.into(), place: place.into() }
    }
    pub fn config(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Config, place, message)
    }
    pub fn missing(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Missing, place, message)
    }
    pub fn broker(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Broker, place, message)
    }
    pub fn storage(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Storage, place, message)
    }
    pub fn limit(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Limit, place, message)
    }
    pub fn stage(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Stage, place, message)
    }
}
