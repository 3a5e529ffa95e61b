//! One run: begin, measure, drain, close, settle. Whatever happens, it ends, and every child is ended.

use contract::summary::Summary;

use crate::books;
use crate::options::{RunError, RunOptions, Services};
use crate::session::Run;

/// Runs a scenario. An error means that it did not begin; nothing of it is left behind.
pub async fn run(options: RunOptions, services: Services) -> Result<Summary, RunError> {
    let out = options.out.clone();
    let folder = |source| RunError::Folder { path: out.clone(), source };
    if let Some(parent) = out.parent() {
        std::fs::create_dir_all(parent).map_err(folder)?;
    }
    std::fs::create_dir(&out).map_err(folder)?;
    let begun = Run::new(options, services);
    let mut run = match begun {
        Ok(run) => run,
        Err(error) => {
            let _ = std::fs::remove_dir_all(&out);
            return Err(error);
        }
    };
    if let Err(error) = run.begin().await {
        run.end_children().await;
        run.remove_data();
        let _ = std::fs::remove_dir_all(&out);
        return Err(error);
    }
    run.measure().await;
    run.drain().await;
    run.close().await;
    books::settle(run).await.map_err(|source| RunError::Folder { path: out, source })
}
