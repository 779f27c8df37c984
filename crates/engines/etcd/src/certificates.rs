//! Certificates: re-exported from the kit.

pub use evenkeel_kit::certificates::{
    CertificateError, CertificateInfo, KeyPair, generate_ca, is_valid_leaf, key_matches, parse,
    sign_leaf,
};
