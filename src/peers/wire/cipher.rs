//! The cipher of a connection: AES-256-GCM, as Noise defines it.
//!
//! snow's own cipher expands the key for each message. This one keeps the expanded key.

use aes_gcm::aead::{AeadInPlace, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};

/// What encryption adds to a message.
pub(super) const TAG: usize = 16;

/// Provides the cipher, and nothing else.
pub(super) struct Ciphers;

impl CryptoResolver for Ciphers {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        None
    }

    fn resolve_dh(&self, _: &DHChoice) -> Option<Box<dyn Dh>> {
        None
    }

    fn resolve_hash(&self, _: &HashChoice) -> Option<Box<dyn Hash>> {
        None
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::AESGCM).then(|| Box::new(AesGcm::new()) as Box<dyn Cipher>)
    }
}

struct AesGcm(Aes256Gcm);

impl AesGcm {
    /// With a key of zeros, until [`set`](Cipher::set) gives it another.
    fn new() -> Self {
        AesGcm(Aes256Gcm::new(&[0; 32].into()))
    }
}

impl Cipher for AesGcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = Aes256Gcm::new(key.into());
    }

    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (text, rest) = out.split_at_mut(plaintext.len());
        text.copy_from_slice(plaintext);
        let tag = self.0.encrypt_in_place_detached(&nonce_of(nonce), authtext, text);
        // Only a text of 64 GB is too long.
        rest[..TAG].copy_from_slice(&tag.expect("a message is short"));
        plaintext.len() + TAG
    }

    fn decrypt(
        &self,
        nonce: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, snow::Error> {
        let length = ciphertext.len().checked_sub(TAG).ok_or(snow::Error::Decrypt)?;
        let (encrypted, tag) = ciphertext.split_at(length);
        let text = out.get_mut(..length).ok_or(snow::Error::Decrypt)?;
        text.copy_from_slice(encrypted);
        let (nonce, tag) = (nonce_of(nonce), Tag::from_slice(tag));
        let decrypted = self.0.decrypt_in_place_detached(&nonce, authtext, text, tag);
        decrypted.map(|()| length).map_err(|_| snow::Error::Decrypt)
    }
}

/// Four bytes of zeros and the number, the greatest byte first (Noise, section 12.4).
fn nonce_of(number: u64) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce.into()
}

#[cfg(test)]
mod tests {
    use snow::resolvers::DefaultResolver;

    use super::*;

    fn both() -> [Box<dyn Cipher>; 2] {
        let of = |resolver: &dyn CryptoResolver| {
            let mut cipher = resolver.resolve_cipher(&CipherChoice::AESGCM).expect("it is known");
            cipher.set(&[7; 32]);
            cipher
        };
        [of(&Ciphers), of(&DefaultResolver)]
    }

    #[test]
    fn messages_are_those_of_snow() {
        let [ours, theirs] = both();
        for (nonce, length) in [(0, 0), (1, 100), (u64::MAX - 1, 1000)] {
            let text = vec![3; length];
            let (mut encrypted, mut expected) = (vec![0; length + TAG], vec![0; length + TAG]);
            assert_eq!(ours.encrypt(nonce, b"with", &text, &mut encrypted), length + TAG);
            theirs.encrypt(nonce, b"with", &text, &mut expected);
            assert_eq!(encrypted, expected);

            let mut decrypted = vec![0; length];
            let decrypting = ours.decrypt(nonce, b"with", &encrypted, &mut decrypted);
            assert_eq!((decrypting.expect("it is whole"), &decrypted), (length, &text));
        }
    }

    #[test]
    fn changed_or_short_message_is_refused() {
        let [ours, _] = both();
        let mut encrypted = [0; 10 + TAG];
        ours.encrypt(5, &[], &[1; 10], &mut encrypted);
        let refuses = |nonce: u64, message: &[u8]| {
            matches!(ours.decrypt(nonce, &[], message, &mut [0; 64]), Err(snow::Error::Decrypt))
        };
        assert!(refuses(6, &encrypted), "another nonce");
        assert!(refuses(5, &encrypted[..TAG - 1]), "shorter than a tag");
        let no_room = ours.decrypt(5, &[], &encrypted, &mut [0; 9]);
        assert!(matches!(no_room, Err(snow::Error::Decrypt)), "no room for the text");
        encrypted[3] ^= 1;
        assert!(refuses(5, &encrypted), "another byte");
    }
}
