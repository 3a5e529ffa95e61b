//! Video from an address: a clip served on loopback, a server that goes silent, one that is not there.

#![allow(clippy::unwrap_used, reason = "a failure anywhere in a test is its result")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use contract::testing::{Sink, context};
use contract::{Io, Shutdown};
use serde_json::json;
use video::STAGES;
use video::decode::Decoder;
use video::error::VideoError;
use video::source::{Location, OpenOptions};

/// What a connection gets.
#[derive(Clone, Copy)]
enum Manner {
    Whole,
    /// This many bytes of the file, then nothing more.
    SilentAfter(usize),
}

/// Serve one file on loopback, without ranges, a connection a request.
fn serve(name: &str, manner: Manner) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/clips").join(name);
    let file = std::fs::read(path).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let file = file.clone();
            thread::spawn(move || answer(connection, &file, manner));
        }
    });
    format!("http://user:secret@{address}/{name}")
}

fn answer(mut connection: TcpStream, file: &[u8], manner: Manner) {
    let mut request = Vec::new();
    let mut byte = [0; 1];
    while !request.ends_with(b"\r\n\r\n") && connection.read(&mut byte).is_ok_and(|read| read == 1) {
        request.push(byte[0]);
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", file.len());
    let _ = connection.write_all(head.as_bytes());
    match manner {
        Manner::Whole => {
            let _ = connection.write_all(file);
        }
        Manner::SilentAfter(bytes) => {
            let _ = connection.write_all(&file[..bytes]);
            thread::sleep(Duration::from_secs(60));
        }
    }
}

fn frames(decoder: &mut Decoder) -> usize {
    let mut count = 0;
    while decoder.next_frame().unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn a_clip_served_over_http_decodes_like_the_file_and_loops() {
    let url = serve("bbb_h264.mp4", Manner::Whole);
    let mut decoder = Decoder::open(&Location::url(&url).unwrap(), &OpenOptions::default()).unwrap();
    assert_eq!(frames(&mut decoder), 20);
    decoder.rewind().unwrap();
    assert_eq!(frames(&mut decoder), 20);
}

#[test]
fn a_stage_plays_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let cx = context(folder.path(), &["frames"]);
    let sink = Sink::new(&cx, 0, usize::MAX);
    let config =
        json!({ "url": serve("bbb_h264.mp4", Manner::Whole), "loop": false, "pace": { "speed": 20 }, "streams": 2 });
    let stage = (STAGES[0].open)(config, &cx).unwrap();
    stage.run(Io { input: None, output: Some(sink.clone()) }, &cx).unwrap();
    assert_eq!(sink.frames().len(), 40);
}

#[test]
fn a_server_that_goes_silent_is_an_error_after_the_timeout() {
    let url = serve("geometry_change.ts", Manner::SilentAfter(6_000));
    let options = OpenOptions { timeout: Duration::from_millis(700), ..OpenOptions::default() };
    let opened = Decoder::open(&Location::url(&url).unwrap(), &options);
    let error = match opened {
        Err(error) => error,
        Ok(mut decoder) => loop {
            match decoder.next_frame() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("silence is not an end"),
                Err(error) => break error,
            }
        },
    };
    let text = error.to_string();
    assert!(text.contains("127.0.0.1") && !text.contains("secret"), "{text}");
    assert!(matches!(error, VideoError::Silent { .. } | VideoError::Read { .. } | VideoError::Open { .. }), "{text}");
}

#[test]
fn an_abort_ends_a_wait_at_once() {
    let url = serve("geometry_change.ts", Manner::SilentAfter(100));
    let shutdown = Shutdown::default();
    let options =
        OpenOptions { timeout: Duration::from_secs(50), shutdown: shutdown.clone(), ..OpenOptions::default() };
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        shutdown.abort();
    });
    let error = Decoder::open(&Location::url(&url).unwrap(), &options).err().unwrap();
    assert!(matches!(error, VideoError::Interrupted { .. }), "{error}");
}

#[test]
fn an_address_nobody_answers_is_named() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for scheme in ["http", "rtsp"] {
        let location = Location::url(&format!("{scheme}://127.0.0.1:{port}/x")).unwrap();
        let error = Decoder::open(&location, &OpenOptions::default()).err().unwrap().to_string();
        assert!(error.contains(&format!("{scheme}://127.0.0.1:{port}/x: cannot be opened as video")), "{error}");
    }
}
