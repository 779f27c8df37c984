//! The clock, passed in as a parameter everywhere: wall time for timestamps in objects, time since boot for leases and
//! ages, and sleep. Tests advance a [`TestClock`].

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

/// A source of time.
pub trait Clock: Send + Sync + Debug {
    /// Returns the wall time, for timestamps in objects. It may jump.
    fn now(&self) -> UnixTime;

    /// Returns the time since boot, including suspend: after a suspend longer than the lease, the lease is expired.
    fn uptime(&self) -> Duration;

    /// Resolves after this duration.
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()>;
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// Returns the clock of the machine.
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> UnixTime {
        UnixTime(jiff::Timestamp::now().as_second())
    }

    fn uptime(&self) -> Duration {
        // Every Linux has CLOCK_BOOTTIME. A system without it fails always, so both sources are never mixed.
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or_else(|_| STARTED.elapsed(), Duration::from)
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(wait).boxed()
    }
}

/// Returns the result of `work`, or `None` if it takes longer than `limit` by this clock.
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

/// A clock for tests that only moves by [`TestClock::advance`]. Clones show the same time.
#[derive(Clone, Debug)]
pub struct TestClock {
    started: UnixTime,
    uptime: Arc<watch::Sender<Duration>>,
}

impl TestClock {
    /// Returns a clock that shows `started` and an uptime of one hour.
    pub fn new(started: UnixTime) -> Self {
        Self {
            started,
            uptime: Arc::new(watch::Sender::new(Duration::from_secs(3600))),
        }
    }

    /// Returns the same clock.
    pub fn shared(&self) -> SharedClock {
        Arc::new(self.clone())
    }

    /// Advances the clock. Tasks whose sleep ends run at the next await of the test.
    pub fn advance(&self, by: Duration) {
        self.uptime.send_modify(|uptime| *uptime += by);
    }

    /// Advances the clock in steps of 50 ms, and lets all tasks run until they wait after each.
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
                // The clock is gone and never advances again.
                pending::<()>().await;
            }
        }
        .boxed()
    }
}

/// Lets the other tasks of a single-threaded test run. A request passes through a handful of tasks and channels; 40
/// yields are several times as many.
async fn run_ready_tasks() {
    for _ in 0..40 {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_does_not_decrease() {
        let one = SystemClock.uptime();
        assert!(SystemClock.uptime() >= one && one > Duration::ZERO);
    }

    #[tokio::test]
    async fn a_sleep_ends_when_the_clock_has_advanced_far_enough() {
        let clock = TestClock::default();
        let sleep = clock.sleep(Duration::from_secs(10));
        let mut task = tokio::spawn(sleep);
        clock.run_for(Duration::from_secs(9)).await;
        assert!((&mut task).now_or_never().is_none(), "a second too early");
        clock.run_for(Duration::from_secs(1)).await;
        assert!(task.now_or_never().is_some());
        assert_eq!(clock.now(), UnixTime(1_800_000_010));
    }

    #[tokio::test]
    async fn work_that_takes_too_long_is_cancelled() {
        let clock = TestClock::default();
        assert_eq!(
            with_timeout(&clock, Duration::from_secs(1), async { 7 }).await,
            Some(7)
        );
        let other = clock.clone();
        let task = tokio::spawn(async move {
            with_timeout(&other, Duration::from_secs(1), pending::<()>())
                .await
                .is_none()
        });
        clock.run_for(Duration::from_secs(1)).await;
        assert!(task.await.unwrap());
    }
}
