use super::*;

fn snapshot(database: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..database).map(|index| (index % 251) as u8).collect();
    let hash = Sha256::digest(&bytes);
    bytes.extend_from_slice(&hash);
    bytes
}

fn check(bytes: &[u8], chunk: usize) -> Result<u64, String> {
    let mut check = TrailerCheck::default();
    for part in bytes.chunks(chunk) {
        check.update(part);
    }
    check.finish()
}

#[test]
fn the_trailer_is_found_whatever_the_sizes_of_chunks_are() {
    let bytes = snapshot(4096);
    for chunk in [1, 7, 31, 32, 33, 512, 4096, 4100, 10_000] {
        assert_eq!(check(&bytes, chunk), Ok(4096), "chunks of {chunk} bytes");
    }
}

#[test]
fn every_changed_or_missing_byte_is_found() {
    let good = snapshot(512);
    for index in 0..good.len() {
        let mut bytes = good.clone();
        bytes[index] ^= 1;
        assert!(check(&bytes, 100).is_err(), "byte {index} changed");
        assert!(check(&good[..index], 100).is_err(), "cut to {index} bytes");
    }
}

#[test]
fn a_size_that_no_snapshot_has_is_rejected() {
    assert!(check(&snapshot(0), 100).is_err());
    assert!(check(&snapshot(513), 100).is_err());
}
