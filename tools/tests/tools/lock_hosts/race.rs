//! Two commands add a host at the same moment, and one of them is killed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::process::Child;

use crate::command::{Answer, Tool, finish};

/// The number of additions that are killed before they end by themselves.
const KILLS: usize = 40;

/// The number of additions that are left to end, to measure how long they take.
const MEASURED: usize = 5;

/// Every name that was ever seen with a number, and every number with a name.
#[derive(Debug, Default)]
struct History {
    names: BTreeMap<i64, String>,
    numbers: BTreeMap<String, i64>,
}

impl History {
    fn saw(&mut self, name: &str, number: i64) {
        let first_name = self.names.entry(number).or_insert_with(|| name.to_owned());
        assert_eq!(first_name, name, "number {number} was given to a second name");
        let first_number = *self.numbers.entry(name.to_owned()).or_insert(number);
        assert_eq!(first_number, number, "{name} got a second number");
    }

    /// The number that the tool printed for a host, if it came to that.
    fn saw_added(&mut self, name: &str, answer: &Answer) -> Option<i64> {
        let number = answer.stdout.strip_prefix(&format!("host {name} has number "))?;
        let number = number.trim_end().parse().expect("a number is printed whole");
        self.saw(name, number);
        Some(number)
    }

    async fn saw_list(&mut self, tool: &Tool) {
        let list = tool.done(&["list", "--all", "--json"]).await;
        let hosts: Vec<serde_json::Value> = serde_json::from_str(&list).expect("it is JSON");
        for host in hosts {
            let name = host["name"].as_str().expect("a host has a name");
            self.saw(name, host["number"].as_i64().expect("a host has a number"));
        }
    }
}

#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn no_number_is_given_to_a_second_name() {
    let _alone = support::alone().await;
    let tool = Tool::initialized("race").await;
    let add = |name: &str| tool.start(&["add", name]);
    let seed = uuid::Uuid::new_v4().as_u128();
    let mut random = seed;
    let mut history = History::default();
    let (mut rounds, mut killed) = (0, 0);
    // How long additions take that are not killed, next to another one.
    let mut took: Vec<Duration> = Vec::new();
    while killed < KILLS {
        let (victim, survivor) = (victim(rounds), format!("survivor{rounds}"));
        let began = Instant::now();
        let (mut dying, living) = (add(&victim), add(&survivor));
        // Anywhere in the time that an addition takes. The first rounds measure it.
        random = random.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        let share = f64::from(u16::try_from(random >> 112).expect("16 bits are left")) / 65_536.0;
        let patience =
            if took.len() < MEASURED { Duration::MAX } else { took[took.len() / 2].mul_f64(share) };
        if ended_within(&mut dying, patience).await {
            took.push(began.elapsed());
            took.sort_unstable();
        } else {
            dying.start_kill().expect("it was not waited for");
        }
        let (dead, alive) = tokio::join!(finish(dying), finish(living));
        killed += usize::from(dead.code.is_none());
        assert_eq!(alive.code, Some(0), "round {rounds}: {alive:?}");
        let of_victim = history.saw_added(&victim, &dead);
        let of_survivor = history.saw_added(&survivor, &alive).expect("the survivor has a number");
        assert_ne!(of_victim, Some(of_survivor), "round {rounds}");
        history.saw_list(&tool).await;
        rounds += 1;
    }
    let victims: Vec<_> = (0..rounds).map(victim).collect();
    let of_victims = victims.iter().filter(|name| history.numbers.contains_key(*name)).count();
    for name in &victims {
        let answer = tool.run(&["add", name]).await;
        history.saw_added(name, &answer).expect("a host whose addition was cut off is added now");
    }
    history.saw_list(&tool).await;
    assert_eq!(history.numbers.len(), 2 * rounds);
    let largest = history.names.keys().max().expect("there are numbers");
    let spent = usize::try_from(*largest).expect("numbers are small") - history.names.len();
    println!(
        "{rounds} rounds (seed {seed:#x}): {killed} killed while they ran, {} killed but \
         registered all the same, {spent} numbers spent; an addition took {:?} at the median, \
         {:?} at most; {} names, {} numbers, none given twice",
        of_victims + killed - rounds,
        took[took.len() / 2],
        took[took.len() - 1],
        history.numbers.len(),
        history.names.len(),
    );
}

fn victim(round: usize) -> String {
    format!("victim{round}")
}

/// Whether a child ends by itself within the time.
async fn ended_within(child: &mut Child, patience: Duration) -> bool {
    let ended = tokio::time::timeout(patience, child.wait()).await;
    ended.is_ok_and(|ended| ended.is_ok())
}
