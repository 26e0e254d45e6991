//! The parts in which a lock table is read whole.

/// How many parts a table has at least. Dead rows are read too before they are skipped, and a node
/// refuses to skip 100,000 of them in one read (`tombstone_failure_threshold`).
const PARTS_MIN: u64 = 256;

/// A part of a lock table: the objects with tokens above `after`, up to and with `up_to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Below the first token.
    pub(crate) after: i64,
    /// The last token.
    pub(crate) up_to: i64,
}

impl Part {
    /// All objects. No object has the smallest token.
    pub(crate) const WHOLE: Part = Part { after: i64::MIN, up_to: i64::MAX };

    /// Splits a table at the tokens of its nodes, so that each part is on one set of replicas, and
    /// further, so that no part is too large.
    pub(crate) fn of_ring(tokens: impl IntoIterator<Item = i64>) -> Vec<Part> {
        let largest = u64::MAX / PARTS_MIN;
        let mut ends: Vec<_> = tokens.into_iter().chain([i64::MAX]).collect();
        ends.sort_unstable();
        let (mut parts, mut after) = (Vec::new(), i64::MIN);
        for end in ends {
            while after < end {
                let up_to = after.saturating_add_unsigned(largest).min(end);
                parts.push(Part { after, up_to });
                after = up_to;
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ring_without_nodes_is_split_too() {
        let parts = Part::of_ring([]);
        assert!((256..=257).contains(&parts.len()), "{}", parts.len());
    }

    proptest! {
        #[test]
        fn each_token_is_in_one_part(
            tokens in proptest::collection::vec(any::<i64>(), 0..40),
        ) {
            let parts = Part::of_ring(tokens.iter().copied());
            prop_assert!(parts.len() <= 257 + tokens.len());
            prop_assert_eq!(parts.first().map(|part| part.after), Some(i64::MIN));
            prop_assert_eq!(parts.last().map(|part| part.up_to), Some(i64::MAX));
            prop_assert!(parts.windows(2).all(|pair| pair[0].up_to == pair[1].after));
            prop_assert!(parts.iter().all(|part| part.after < part.up_to));
            // None spans two nodes' ranges.
            for token in tokens {
                prop_assert!(parts.iter().all(|part| token <= part.after || token >= part.up_to));
            }
        }
    }
}
