//! A process of its own: whoever listens to SIGTERM does not die of it, and a test that hangs should.

use nix::sys::signal::{Signal, raise};

#[tokio::test]
async fn a_signal_cancels_the_token() {
    let token = evenkeel_runtime::shutdown().unwrap();
    assert!(!token.is_cancelled());
    raise(Signal::SIGTERM).unwrap();
    token.cancelled().await;
}
