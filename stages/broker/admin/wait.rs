//! Waits for the futures of rdkafka's admin client on the calling thread; the client has threads of its own, so no runtime is
//! needed.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(super) fn wait_for<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_woken_by_another_thread_is_waited_for() {
        let (mut asked, shared) = (0, Arc::new(std::sync::Mutex::new(None)));
        let future = std::future::poll_fn(|context| {
            asked += 1;
            if asked > 1 {
                return Poll::Ready(asked);
            }
            let waker: std::task::Waker = context.waker().clone();
            *shared.lock().unwrap() = Some(std::thread::spawn(move || waker.wake()));
            Poll::Pending
        });
        assert_eq!(wait_for(future), 2);
    }
}
