//! One connection: read a frame, answer it, in order, until either side ends it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use crate::api::MAX_FRAME_BYTES;
use crate::facts::add;
use crate::request;
use crate::serve::{self, Caller, Outcome, Shared};
use crate::waiters::Waiter;

/// A frame must arrive, and a response be taken, without a pause longer than this.
const STALL: Duration = Duration::from_secs(60);
/// Buffers up to this size are kept for the next request.
const KEPT_BUFFER_BYTES: usize = 16 << 20;
/// Memory reserved for a frame before its bytes arrive, whatever length it claims.
const RESERVED_BYTES: usize = 4 << 20;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("closed by the client")]
    Closed,
    #[error("the broker stops")]
    Stopping,
    #[error("frame of {0} bytes, allowed are 8 to {MAX_FRAME_BYTES}")]
    FrameLength(i64),
    #[error("malformed request: {0}")]
    Malformed(#[from] crate::decode_limits::Malformed),
    #[error("data sent without acknowledgement was refused")]
    Refused,
    #[error("the request's work panicked")]
    Panicked,
    #[error(transparent)]
    Unencodable(#[from] serve::Unencodable),
    #[error(transparent)]
    Socket(#[from] io::Error),
}

impl Ended {
    /// The client went away, politely or not, or the broker did: nothing to warn about.
    pub fn is_ordinary(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, WouldBlock};
        match self {
            Ended::Closed | Ended::Stopping => true,
            Ended::Socket(error) => matches!(error.kind(), BrokenPipe | ConnectionReset | TimedOut | WouldBlock),
            _ => false,
        }
    }
}

/// Serve a connection to its end.
pub(crate) fn serve(stream: &TcpStream, shared: &Shared, node: u16, waiter: &Arc<Waiter>) -> Ended {
    match set_up(stream).map_err(Ended::from).and_then(|()| run(stream, shared, node, waiter)) {
        Ok(never) => match never {},
        Err(ended) => ended,
    }
}

fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))
}

fn run(
    mut stream: &TcpStream,
    shared: &Shared,
    node: u16,
    waiter: &Arc<Waiter>,
) -> Result<std::convert::Infallible, Ended> {
    let caller = Caller { shared, node, waiter };
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        // A client that keeps sending would otherwise never let its connection end.
        if shared.stopping.load(Ordering::Acquire) {
            return Err(Ended::Stopping);
        }
        read_frame(stream, shared, &mut input)?;
        add(&shared.counters.bytes_in, input.len() as u64 + 4);
        let mut frame = Bytes::from(input);
        let worked = catch_unwind(AssertUnwindSafe(|| answer(&caller, &frame, &mut output)));
        let outcome = worked.unwrap_or_else(|_| {
            add(&shared.counters.requests_panicked, 1);
            Err(Ended::Panicked)
        })?;
        match outcome {
            Outcome::Respond => {
                stream.write_all(&output)?;
                add(&shared.counters.bytes_out, output.len() as u64);
            }
            Outcome::Silent => {}
            Outcome::Close => return Err(Ended::Refused),
        }
        // Nothing of the request is kept, so this takes the memory back; emptied first, it does not even move bytes.
        frame.clear();
        input = Vec::from(frame);
        for buffer in [&mut input, &mut output] {
            buffer.clear();
            if buffer.capacity() > KEPT_BUFFER_BYTES {
                *buffer = Vec::new();
            }
        }
    }
}

fn answer(caller: &Caller<'_>, frame: &Bytes, output: &mut Vec<u8>) -> Result<Outcome, Ended> {
    let (header, request) =
        request::decode(frame).inspect_err(|_| add(&caller.shared.counters.requests_malformed, 1))?;
    caller.shared.counters.count_request(header.api_key, header.version);
    Ok(serve::answer(caller, &header, request, output)?)
}

/// Read one frame, without its length, into an empty buffer.
fn read_frame(stream: &TcpStream, shared: &Shared, input: &mut Vec<u8>) -> Result<(), Ended> {
    let length = i64::from(i32::from_be_bytes(read_length(stream, shared)?));
    if !(8..=i64::from(MAX_FRAME_BYTES)).contains(&length) {
        add(&shared.counters.requests_malformed, 1);
        return Err(Ended::FrameLength(length));
    }
    let length = usize::try_from(length).expect("the length was just compared with a small limit");
    input.reserve(length.min(RESERVED_BYTES));
    if stream.take(length as u64).read_to_end(input)? < length {
        return Err(Ended::Closed);
    }
    Ok(())
}

/// Between requests a client may be quiet as long as it likes.
fn read_length(mut stream: &TcpStream, shared: &Shared) -> Result<[u8; 4], Ended> {
    let mut bytes = [0; 4];
    let mut filled = 0;
    while filled < bytes.len() {
        match stream.read(&mut bytes[filled..]) {
            Ok(0) if shared.stopping.load(Ordering::Acquire) => return Err(Ended::Stopping),
            Ok(0) => return Err(Ended::Closed),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && filled == 0 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}
