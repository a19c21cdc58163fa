//! Rules at both ends: who decides what about a flow.

use crate::common::{Origin, Pair, exchange, forward, noise, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_end_codes_what_it_sends_by_its_own_rules() {
    within(async {
        let origin = Origin::echo().await;
        // What the hub sends is not remembered; what the branch sends is, and is not compressed either way.
        let hub_rule = "[[policy]]\ncodec = \"auto\"\nlog_memory = 0\n";
        let branch_rule = "[[policy]]\ncodec = \"auto\"\nentropy = \"none\"\nperiod = 32\n";
        let branch = forward(origin.address) + branch_rule;
        let pair = Pair::with(&branch, hub_rule, async |hub| hub).await;
        let data = noise(31, 300_000);
        for _ in 0..2 {
            assert!(exchange(pair.connect().await, &data).await.unwrap() == data);
        }
        let (branch, hub) = (pair.branch.status().peers.remove(0), pair.hub.status().peers.remove(0));
        assert!(branch.out.copied > 290_000, "{:?}", branch.out);
        assert_eq!((hub.out.copied, hub.out.remembered), (0, 0), "{:?}", hub.out);
        assert_eq!(hub.out.not_remembered, 600_000);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_at_either_end_keeps_a_flow_from_being_coded_both_ways() {
    within(async {
        let origin = Origin::echo().await;
        let none = "[[policy]]\ncodec = \"none\"\n";
        let changed = "[[policy]]\ncodec = \"auto\"\nentropy = \"lz4\"\n";
        for (at_branch, at_hub) in [(none, changed), (changed, none)] {
            let pair = Pair::with(&(forward(origin.address) + at_branch), at_hub, async |hub| hub).await;
            let data = noise(32, 100_000);
            assert!(exchange(pair.connect().await, &data).await.unwrap() == data);
            // What the branch sent before it heard of the hub's rule may have been remembered.
            let hub = pair.hub.status().peers.remove(0);
            assert_eq!(hub.out.remembered, 0, "{:?}", hub.out);
        }
    })
    .await;
}
