//! Ctrl-C and SIGTERM: the first asks to finish what is held, the second gives up.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

fn both() -> std::io::Result<(Signal, Signal)> {
    Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
}

/// Counts the signals received.
pub fn count() -> std::io::Result<watch::Receiver<u32>> {
    let (mut interrupt, mut terminate) = both()?;
    let (sender, receiver) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            sender.send_modify(|count| *count += 1);
        }
    });
    Ok(receiver)
}

/// Waits for one signal.
pub async fn one() {
    match both() {
        Ok((mut interrupt, mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        // Without handlers the default action ends the process.
        Err(_) => std::future::pending().await,
    }
}
