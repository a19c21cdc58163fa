//! Who is responsible for a chunk: highest random weight [Wanax §3.3].

use twox_hash::XxHash3_64;

/// Names a gateway among its neighbours: XXH3 of its public key, so all of them come to the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl MemberId {
    /// Takes a gateway's raw public key.
    pub fn of_key(public_key: &[u8; 32]) -> Self {
        Self(XxHash3_64::oneshot(public_key))
    }

    /// Returns the member's weight for a chunk; whoever has the largest one is responsible for it.
    pub fn weight(self, tag: u64) -> u64 {
        XxHash3_64::oneshot_with_seed(self.0, &tag.to_le_bytes())
    }
}

/// Returns the member that is responsible for a chunk; none if there are no members.
pub fn responsible(members: impl IntoIterator<Item = MemberId>, tag: u64) -> Option<MemberId> {
    members.into_iter().max_by_key(|member| (member.weight(tag), *member))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn weights_are_pinned() {
        assert_eq!(MemberId::of_key(&[7; 32]), MemberId(PINNED_ID));
        assert_eq!(MemberId(1).weight(2), PINNED_WEIGHT);
    }

    #[test]
    fn shares_are_about_even() {
        let members: Vec<MemberId> = (0..5u8).map(|key| MemberId::of_key(&[key; 32])).collect();
        for member in &members {
            let share = (0..10_000).filter(|&tag| responsible(members.clone(), tag) == Some(*member)).count();
            assert!((1_850..2_150).contains(&share), "{member:?} has {share} of 10000");
        }
    }

    proptest! {
        #[test]
        fn membership_change_moves_only_the_members_share(
            members in prop::collection::btree_set(any::<u64>(), 1..9),
            other: u64,
            tags in prop::collection::vec(any::<u64>(), 1..200),
        ) {
            let few: BTreeSet<MemberId> =
                members.into_iter().filter(|id| *id != other).map(MemberId).collect();
            prop_assume!(!few.is_empty());
            let other = MemberId(other);
            let more: BTreeSet<MemberId> = few.iter().copied().chain([other]).collect();
            for tag in tags {
                let (without, with) = (responsible(few.clone(), tag), responsible(more.clone(), tag));
                prop_assert!(with == without || with == Some(other), "tag {tag}");
                // Who was responsible before is the next in order.
                let next = responsible(more.iter().copied().filter(|id| Some(*id) != with), tag);
                prop_assert!(with != Some(other) || next == without, "tag {tag}");
            }
        }
    }

    const PINNED_ID: u64 = 7_127_938_534_639_327_726;
    const PINNED_WEIGHT: u64 = 1_667_139_887_444_314_012;
}
