//! Chance, handed in like the clock, so that a run can be repeated from its seed. For jitter and names; never for
//! keys.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where chance comes from.
pub trait Random: Send + Sync + Debug {
    /// Any number, each as likely as the others.
    fn u64(&self) -> u64;
}

/// Chance as it is handed around.
pub type SharedRandom = Arc<dyn Random>;

/// Chance from the operating system, by way of the keys that Rust hashes with.
#[derive(Debug, Default)]
pub struct SystemRandom {
    keys: RandomState,
    drawn: AtomicU64,
}

impl SystemRandom {
    /// Freshly keyed, to hand around.
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

/// The same numbers for the same seed.
#[derive(Debug)]
pub struct TestRandom {
    state: AtomicU64,
}

impl TestRandom {
    /// The numbers that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }

    /// The numbers that follow from `seed`, to hand around.
    pub fn shared(seed: u64) -> SharedRandom {
        Arc::new(Self::new(seed))
    }
}

impl Random for TestRandom {
    fn u64(&self) -> u64 {
        // SplitMix64: a counter, well stirred.
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

/// The duration, give or take a tenth: so that what began together does not come back together.
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
    fn a_seed_repeats_itself_and_the_system_does_not() {
        let draw = |random: &dyn Random| [random.u64(), random.u64(), random.u64()];
        assert_eq!(draw(&TestRandom::new(7)), draw(&TestRandom::new(7)));
        assert_ne!(draw(&TestRandom::new(7)), draw(&TestRandom::new(8)));
        assert_ne!(
            draw(&SystemRandom::default()),
            draw(&SystemRandom::default())
        );
    }

    #[test]
    fn jitter_stays_within_a_tenth_and_uses_both_sides() {
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
