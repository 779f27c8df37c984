//! Random numbers, passed in as a parameter like the clock, so that a test can be repeated from its seed. For jitter and
//! names, never for keys.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of random numbers.
pub trait Random: Send + Sync + Debug {
    /// Returns a uniformly distributed number.
    fn u64(&self) -> u64;
}

/// A shared source of random numbers.
pub type SharedRandom = Arc<dyn Random>;

/// Random numbers from the operating system, through the keys of Rust's hash maps.
#[derive(Debug, Default)]
pub struct SystemRandom {
    keys: RandomState,
    drawn: AtomicU64,
}

impl SystemRandom {
    /// Returns a source with new keys.
    pub fn shared() -> SharedRandom {
        Arc::new(Self::default())
    }
}

impl Random for SystemRandom {
    fn u64(&self) -> u64 {
        let mut hasher = self.keys.build_hasher();
        hasher.write_u64(self.drawn.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }
}

/// A source that returns the same numbers for the same seed.
#[derive(Debug)]
pub struct TestRandom {
    state: AtomicU64,
}

impl TestRandom {
    /// Returns a source with this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }

    /// Returns a shared source with this seed.
    pub fn shared(seed: u64) -> SharedRandom {
        Arc::new(Self::new(seed))
    }
}

impl Random for TestRandom {
    fn u64(&self) -> u64 {
        // SplitMix64.
        const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self
            .state
            .fetch_add(STRIDE, Ordering::Relaxed)
            .wrapping_add(STRIDE);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Returns the duration with a jitter of 10 %, so that resources that start together do not stay together.
pub fn jitter(duration: Duration, random: &dyn Random) -> Duration {
    const SPREAD: f64 = 0.1;
    // The upper 53 bits, as a fraction in [0, 1).
    let fraction = (random.u64() >> 11) as f64 / (1u64 << 53) as f64;
    duration.mul_f64(1.0 - SPREAD + 2.0 * SPREAD * fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_the_system_does_not() {
        let draw = |random: &dyn Random| [random.u64(), random.u64(), random.u64()];
        assert_eq!(draw(&TestRandom::new(7)), draw(&TestRandom::new(7)));
        assert_ne!(draw(&TestRandom::new(7)), draw(&TestRandom::new(8)));
        assert_ne!(
            draw(&SystemRandom::default()),
            draw(&SystemRandom::default())
        );
    }

    #[test]
    fn jitter_adds_and_subtracts_at_most_ten_percent() {
        let random = TestRandom::new(1);
        let minute = Duration::from_secs(60);
        let drawn: Vec<_> = (0..1000).map(|_| jitter(minute, &random)).collect();
        assert!(
            drawn
                .iter()
                .all(|d| (54.0..=66.0).contains(&d.as_secs_f64()))
        );
        assert!(drawn.iter().any(|d| *d < minute) && drawn.iter().any(|d| *d > minute));
    }
}
