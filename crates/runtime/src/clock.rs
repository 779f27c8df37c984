//! The clock that everything is handed, never reached for: wall time for what is written into objects, time since
//! boot for what must hold (a lease, an age), and sleep. Tests turn the hands of [`TestClock`] themselves.

use std::fmt::Debug;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use nix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

use crate::UnixTime;

/// Where time comes from.
pub trait Clock: Send + Sync + Debug {
    /// What the wall clock says: for timestamps in objects, and for nothing that must not jump.
    fn now(&self) -> UnixTime;

    /// Time since boot, the time in suspend included: a machine that slept through its lease must notice.
    fn uptime(&self) -> Duration;

    /// Resolves when this much time has passed.
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()>;
}

/// A clock as it is handed around.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The machine's clock, to hand around.
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> UnixTime {
        UnixTime(jiff::Timestamp::now().as_second())
    }

    fn uptime(&self) -> Duration {
        // Every Linux has this clock. Should one refuse it, it refuses always, so the two are never mixed.
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or_else(|_| STARTED.elapsed(), Duration::from)
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(wait).boxed()
    }
}

/// What `work` came to, or nothing if it took longer than `limit`: a timeout by the clock that was handed in.
pub async fn with_timeout<T>(
    clock: &dyn Clock,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    match select(pin!(work), clock.sleep(limit)).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

/// A clock for tests, whose hands only move by [`TestClock::advance`]. Clones show the same time.
#[derive(Clone, Debug)]
pub struct TestClock {
    started: UnixTime,
    uptime: Arc<watch::Sender<Duration>>,
}

impl TestClock {
    /// Shows `started`, and an hour since boot.
    pub fn new(started: UnixTime) -> Self {
        Self {
            started,
            uptime: Arc::new(watch::Sender::new(Duration::from_secs(3600))),
        }
    }

    /// The same clock, to hand around.
    pub fn shared(&self) -> SharedClock {
        Arc::new(self.clone())
    }

    /// Moves the hands, and wakes whoever slept until then (they run when the test awaits next).
    pub fn advance(&self, by: Duration) {
        self.uptime.send_modify(|uptime| *uptime += by);
    }

    /// Moves the hands in small steps, and after each lets every task run until it waits again.
    pub async fn run_for(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(50);
        let mut left = time;
        run_ready_tasks().await;
        while !left.is_zero() {
            let step = left.min(STEP);
            self.advance(step);
            left -= step;
            run_ready_tasks().await;
        }
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new(UnixTime(1_800_000_000))
    }
}

impl Clock for TestClock {
    fn now(&self) -> UnixTime {
        self.started
            .after(self.uptime().saturating_sub(Duration::from_secs(3600)))
    }

    fn uptime(&self) -> Duration {
        *self.uptime.borrow()
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        let mut uptime = self.uptime.subscribe();
        let until = uptime.borrow().saturating_add(wait);
        async move {
            if uptime.wait_for(|now| *now >= until).await.is_err() {
                // Nobody can move the hands any more, so that time never comes.
                pending::<()>().await;
            }
        }
        .boxed()
    }
}

/// Lets the other tasks of a single-threaded test run. A request passes through a handful of tasks and channels;
/// this is several times as many turns.
async fn run_ready_tasks() {
    for _ in 0..40 {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_never_goes_back() {
        let one = SystemClock.uptime();
        assert!(SystemClock.uptime() >= one && one > Duration::ZERO);
    }

    #[tokio::test]
    async fn a_sleeper_wakes_when_the_hands_have_been_moved_far_enough() {
        let clock = TestClock::default();
        let sleep = clock.sleep(Duration::from_secs(10));
        let mut sleeper = tokio::spawn(sleep);
        clock.run_for(Duration::from_secs(9)).await;
        assert!(
            (&mut sleeper).now_or_never().is_none(),
            "a second too early"
        );
        clock.run_for(Duration::from_secs(1)).await;
        assert!(sleeper.now_or_never().is_some());
        assert_eq!(clock.now(), UnixTime(1_800_000_010));
    }

    #[tokio::test]
    async fn what_takes_too_long_is_given_up() {
        let clock = TestClock::default();
        assert_eq!(
            with_timeout(&clock, Duration::from_secs(1), async { 7 }).await,
            Some(7)
        );
        let other = clock.clone();
        let waits = tokio::spawn(async move {
            with_timeout(&other, Duration::from_secs(1), pending::<()>())
                .await
                .is_none()
        });
        clock.run_for(Duration::from_secs(1)).await;
        assert!(waits.await.unwrap());
    }
}
