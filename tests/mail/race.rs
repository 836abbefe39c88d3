//! Many processes, each with several threads, on one mailbox.
//!
//! `TORTURE_MESSAGES` messages (5,000) for each of eight processes; see tests/torture/README.md.

use crate::support::history::{History, Writer};
use crate::support::{PATIENCE, Process, eventually_true, name, options, setting};

use crate::*;

/// Publishers and consumers, half of each.
const PROCESSES: u64 = 8;
/// Threads in each process, sharing one open queue.
const THREADS: u64 = 2;

#[test]
fn a_child_process_plays_its_role() {
    match support::role().as_deref() {
        Some("publisher") => in_threads(publish),
        Some("consumer") => in_threads(consume),
        Some(other) => panic!("there is no role `{other}`"),
        None => {}
    }
}

fn in_threads(work: fn(&Spool, &str, Writer)) {
    let spool = Spool::open(given("QUEUE").as_ref(), options()).unwrap();
    let me = given("ME");
    std::thread::scope(|scope| {
        for thread in 0..given("THREADS").parse().unwrap() {
            let (spool, me) = (&spool, format!("{me}.{thread}"));
            let history = Writer::open(&Path::new(&given("HISTORY")).join(&me));
            scope.spawn(move || work(spool, &me, history));
        }
    });
}

fn publish(spool: &Spool, me: &str, mut history: Writer) {
    for number in 0..given("COUNT").parse().unwrap() {
        let envelope = Envelope::new(name("dispatch"), format!("{me} {number}\n"));
        spool.publish(&envelope).unwrap();
        history.note("published", envelope.id.as_str(), number);
    }
}

/// Receives and settles until the file `STOP` exists and nothing waits any more.
fn consume(spool: &Spool, me: &str, mut history: Writer) {
    let stop = PathBuf::from(given("STOP"));
    let holder = name(me);
    history.note("started", me, 0);
    loop {
        let last_look = stop.exists();
        match spool.receive(&name("dispatch"), &holder).unwrap() {
            Some(delivery) => {
                history.note_lease("received", &delivery.lease);
                spool.settle(&delivery.lease).unwrap();
                history.note_lease("settled", &delivery.lease);
                let (publisher, number) = delivery.envelope.body.trim().split_once(' ').unwrap();
                history.note(&format!("order:{publisher}"), "-", number.parse().unwrap());
            }
            None if last_look => return,
            None => support::pause(),
        }
    }
}

struct Field {
    bed: Bed,
    history: PathBuf,
    stop: PathBuf,
}

impl Field {
    fn new() -> Self {
        let bed = Bed::with(&Settings::default(), "");
        let history = bed.home.path().join("history");
        std::fs::create_dir(&history).unwrap();
        let stop = bed.home.path().join("stop");
        Self { bed, history, stop }
    }

    fn start(&self, role: &str, number: u64, threads: u64, count: u64) -> Process {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        Process::role(
            &format!("race::{role}"),
            &[
                ("QUEUE", &path(&self.bed.queue())),
                ("HISTORY", &path(&self.history)),
                ("STOP", &path(&self.stop)),
                ("ME", &format!("{role}-{number}")),
                ("THREADS", &threads.to_string()),
                ("COUNT", &count.to_string()),
            ],
        )
    }

    fn consumer(&self, number: u64, threads: u64) -> Process {
        let consumer = self.start("consumer", number, threads, 0);
        let started = |thread| self.history.join(format!("consumer-{number}.{thread}")).exists();
        eventually_true(PATIENCE, "a consumer starts", || (0..threads).all(started));
        consumer
    }

    /// Publishes one at a time for as long as one of the first consumers has received nothing.
    /// Those that existed earlier may have taken everything while it paused. Returns how
    /// many.
    fn feed_until_every_consumer_has_received(&self, consumers: usize) -> u64 {
        let (spool, mut history) = (self.bed.spool(), Writer::open(&self.history.join("feeder")));
        let mut fed = 0;
        eventually_true(PATIENCE, "no consumer starves", || {
            let is_fed = shares(&self.history)[..consumers].iter().all(|share| *share > 0);
            if !is_fed {
                let envelope = Envelope::new(name("dispatch"), format!("feeder {fed}\n"));
                spool.publish(&envelope).unwrap();
                history.note("published", envelope.id.as_str(), fed);
                fed += 1;
            }
            is_fed
        });
        fed
    }

    fn settled(&self) -> u64 {
        self.bed.spool().counts(&name("dispatch")).unwrap().settled
    }
}

#[test]
fn every_message_is_received_once_and_settled_once_by_any_number_of_processes_and_threads() {
    let each = setting("TORTURE_MESSAGES", 2_000);
    let total = each * PROCESSES;
    let field = Field::new();
    let start = Instant::now();
    let mut consumers = vec![field.consumer(0, THREADS), field.consumer(1, THREADS)];
    let publishers: Vec<Process> = (0..PROCESSES / 2)
        .map(|number| field.start("publisher", number, THREADS, 2 * each / THREADS))
        .collect();
    eventually_true(PATIENCE, "a quarter is settled", || field.settled() >= total / 4);
    consumers.push(field.consumer(2, THREADS));
    eventually_true(PATIENCE, "three agents are settled", || field.settled() >= total / 4 * 3);
    consumers.push(field.consumer(3, THREADS));
    publishers.into_iter().for_each(Process::succeeds);
    let total = total + field.feed_until_every_consumer_has_received(3);
    std::fs::write(&field.stop, "").unwrap();
    consumers.into_iter().for_each(Process::succeeds);
    let seconds = start.elapsed().as_secs_f64();

    let history = History::read(&field.history);
    let published = history.ids("published");
    assert_eq!(published.len() as u64, total, "published under an id of its own");
    assert_eq!(history.repeated("received"), [""; 0], "received twice");
    assert_eq!(history.repeated("settled"), [""; 0], "settled twice");
    assert_eq!(history.ids("received"), published, "received, and nothing else");
    assert_eq!(history.ids("settled"), published, "settled, and nothing else");
    assert!(history.of("received").iter().all(|(_, epoch)| *epoch == 1), "the first delivery");
    assert_eq!((field.settled(), field.bed.total("dispatch")), (total, total));
    assert!(support::files(&field.bed.in_queue("tmp")).is_empty());
    let shares = shares(&field.history);
    println!(
        "{total} messages, {PROCESSES} processes of {THREADS} threads: {seconds:.1} s, {:.0} a second, shares {shares:?}",
        total as f64 / seconds
    );
}

/// How much each consumer process has received.
fn shares(directory: &Path) -> Vec<usize> {
    (0..PROCESSES / 2)
        .map(|number| {
            let mut history = History::default();
            for thread in 0..THREADS {
                history.read_file(&directory.join(format!("consumer-{number}.{thread}")));
            }
            history.count("received")
        })
        .collect()
}

#[test]
fn a_single_consumer_receives_what_one_publisher_sent_in_its_order() {
    let each = setting("TORTURE_MESSAGES", 2_000) / 5;
    let field = Field::new();
    let start = Instant::now();
    let publishers: Vec<Process> =
        (0..4).map(|number| field.start("publisher", number, 1, each)).collect();
    let consumer = field.consumer(0, 1);
    publishers.into_iter().for_each(Process::succeeds);
    std::fs::write(&field.stop, "").unwrap();
    consumer.succeeds();
    let history = History::read(&field.history);
    let mut late = BTreeMap::new();
    for publisher in 0..4 {
        let order = history.of(&format!("order:publisher-{publisher}.0"));
        assert_eq!(order.len() as u64, each);
        late.insert(publisher, order.windows(2).filter(|pair| pair[1].1 < pair[0].1).count());
    }
    // A listing is not a snapshot: what lands while it is made may be seen by the next one only.
    let total: usize = late.values().sum();
    assert!(total as u64 <= each / 50, "out of order: {late:?}");
    println!("4 x {each} messages: out of order {late:?}, {:.1} s", start.elapsed().as_secs_f64());
}

#[test]
fn a_backlog_is_received_in_exactly_the_order_of_each_publisher() {
    let each = setting("TORTURE_MESSAGES", 2_000) / 10;
    let field = Field::new();
    let publishers: Vec<Process> =
        (0..4).map(|number| field.start("publisher", number, 1, each)).collect();
    publishers.into_iter().for_each(Process::succeeds);
    std::fs::write(&field.stop, "").unwrap();
    field.start("consumer", 0, 1, 0).succeeds();
    let history = History::read(&field.history);
    for publisher in 0..4 {
        let order = history.of(&format!("order:publisher-{publisher}.0"));
        let numbers: Vec<u64> = order.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, (0..each).collect::<Vec<_>>(), "publisher {publisher}");
    }
    println!("a backlog of 4 x {each} messages: in order");
}
