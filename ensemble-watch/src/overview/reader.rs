//! Looks again and again at the same project, and reads only what has changed since.
//!
//! | part | is read again when this has changed |
//! |---|---|
//! | the watcher's status | its file |
//! | the members | the directory of the roster |
//! | the agents of other hosts | the directory of what these tell |
//! | a mailbox: counts, held messages, dead tasks | one of its directories; or a message of it is delayed |
//! | the blackboard | its file |
//! | ladders | their directory |
//! | requests | at each look, but for those that were closed before |
//! | requests that were not decided | at each look while there are some |
//! | mailboxes on servers, step queues, control files, budgets | at each look |
//!
//! A caller that watches the [`places`](OverviewReader::places) can say in which of them something has changed. Stamps
//! of the others are not even looked at. Stamps of files can miss a file that is written in place. So all is read again every [`WHOLE_INTERVAL`].

use std::collections::{BTreeMap, HashSet};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ensemble_core::driver::{LadderFile, LadderStore};
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::message::{MessageId, Name};
use ensemble_core::requests::RequestStore;
use ensemble_core::spool::Spool;
use ensemble_core::{Error, Result};
use ensemble_team::board::SharedCopy;
use ensemble_team::holdings::{Holding, Places};
use ensemble_team::roster::Member;

use super::agents::Look;
use super::changes::Changes;
use super::kept::Kept;
use super::parts::{self, Post, SeenMailbox};
use super::undecided::Undecided;
use super::watcher_view::Said;
use super::{Evidence, MailboxView, Overview, WatcherView};
use crate::attention::DeadTask;
use crate::hosts::{self, OtherHost};
use crate::project::Project;
use crate::troubles;
use crate::workload::{self, Books, Workload};

/// How long a part may be shown that no stamp has said to be changed.
const WHOLE_INTERVAL: Duration = Duration::from_secs(30);

/// Fewer mailboxes are not worth another thread.
const MAILBOXES_A_THREAD: usize = 200;
/// Most threads that read mailboxes.
const THREADS_MAX: usize = 8;

/// What the last look has read.
#[derive(Debug)]
pub struct OverviewReader {
    project: Project,
    books: Books,
    said: Kept<Said>,
    roster: Kept<Roster>,
    hosts: Kept<Vec<OtherHost>>,
    names: Kept<Vec<Name>>,
    mailboxes: BTreeMap<Name, Kept<SeenMailbox>>,
    ladders: Kept<Vec<LadderFile>>,
    closed: HashSet<Name>,
    undecided: Undecided,
    whole_at: Option<Monotonic>,
    looks_again: bool,
}

/// The members, and what of the roster cannot be read.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) members: Vec<Member>,
    errors: Vec<String>,
}

/// What is known of all mailboxes together.
#[derive(Default)]
struct Mail {
    views: Vec<MailboxView>,
    held: Vec<(Name, Holding)>,
    dead: Vec<DeadTask>,
    notices: Vec<MessageId>,
}

impl OverviewReader {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(project: &Project) -> Self {
        let roster = project.roster();
        let ladders = LadderStore::new(&project.state);
        Self {
            books: Books::default(),
            said: Kept::of(vec![project.watch_status()]),
            roster: Kept::of(vec![roster.dir().to_owned()]),
            hosts: Kept::of(vec![hosts::directory(&project.state)]),
            names: Kept::of(vec![parts::mailboxes_dir(project)]),
            mailboxes: BTreeMap::new(),
            ladders: Kept::of(vec![ladders.dir()]),
            closed: HashSet::new(),
            undecided: Undecided::default(),
            whole_at: None,
            looks_again: true,
            project: project.clone(),
        }
    }

    /// As [`OverviewReader::new`], for one look alone: it keeps nothing, and several threads read many mailboxes.
    pub(super) fn once(project: &Project) -> Self {
        Self { looks_again: false, ..Self::new(project) }
    }

    /// Looks at everything that may have changed. `directory` is the queue, unless its mailboxes are on servers.
    ///
    /// # Errors
    /// The queue or the roster cannot be read.
    pub fn look(
        &mut self,
        changes: &Changes,
        store: &dyn RequestStore,
        directory: Option<&Spool>,
        evidence: Evidence,
    ) -> Result<Overview> {
        let now = SystemClock.monotonic();
        if self.whole_at.is_none_or(|at| now.since(at) >= WHOLE_INTERVAL) {
            self.forget();
            self.whole_at = Some(now);
        }
        let mut warnings = Vec::new();
        if let (Some(files), Some(copy)) = (store.shared_files(), self.project.shared_copy())
            && let Err(error) = SharedCopy::new(copy, files).pull()
        {
            warnings.push(format!("the blackboard: {error}"));
        }
        self.books.look(&self.project);
        let watcher = WatcherView::look(&self.project, (&mut self.said, changes), &mut warnings);
        let mail = self.mail(changes, (store, directory), &mut warnings)?;
        let pending = workload::pending_but(store, &mut self.closed)?;
        let workload = Workload {
            waits_for: workload::waits_in(&pending),
            holds: self.books.holds_with(Places::of_messages(&mail.held), |_| true)?,
        };
        let roster = self.roster.get(changes, || Roster::read(&self.project))?;
        warnings.extend(roster.errors.iter().cloned());
        let others = self.hosts.get(changes, || Ok(hosts::others(&self.project.state)))?;
        let look = Look {
            hosts: if directory.is_some() { &[] } else { &others },
            project: &self.project,
            is_directory: directory.is_some(),
            watcher: &watcher,
            workload: &workload,
        };
        let agents = look.agents(&roster.members, &self.books, &mail.views, evidence)?;
        let project = &self.project;
        let ladders =
            self.ladders.get(changes, || parts::ladders(&LadderStore::new(&project.state)))?;
        let mut overview = Overview {
            at: SystemClock.wall(),
            agents,
            holds: workload.holds,
            pending,
            undecided: self.undecided.of(store, &mail.notices)?,
            ladders: ladders.to_vec(),
            troubles: troubles::of_project(project, &self.books, store.now())?,
            steps: self.books.standing(project).unwrap_or_else(|error| {
                warnings.push(format!("step queues: {error}"));
                Vec::new()
            }),
            open_tasks: parts::open_tasks(&self.books),
            needs: Vec::new(),
            warnings,
            watcher,
            mailboxes: mail.views,
        };
        overview.needs = overview.needs_of(project, &mail.dead)?;
        Ok(overview)
    }

    /// The directories in which a change may change the overview, as of the last look.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        let project = &self.project;
        let mailboxes = parts::mailboxes_dir(project);
        let of_mailbox = |name: &Name| parts::mailbox_places(&mailboxes, name);
        let mut places: Vec<PathBuf> = self.mailboxes.keys().flat_map(of_mailbox).collect();
        places.extend([
            project.state.clone(),
            project.roster().dir().to_owned(),
            project.panes(),
            project.logs(),
            hosts::directory(&project.state),
            project.queue.clone(),
            project.queue.join(ensemble_core::requests::REQUESTS),
            LadderStore::new(&project.state).dir(),
            mailboxes,
        ]);
        places.extend(project.shared_copy());
        if let Some(board) = self.books.place().and_then(|board| board.path().parent()) {
            places.push(board.to_owned());
        }
        places
    }

    fn forget(&mut self) {
        self.books = Books::default();
        self.said.forget();
        self.roster.forget();
        self.hosts.forget();
        self.names.forget();
        self.mailboxes.values_mut().for_each(Kept::forget);
        self.ladders.forget();
    }

    fn mail(
        &mut self,
        changes: &Changes,
        (store, directory): (&dyn RequestStore, Option<&Spool>),
        warnings: &mut Vec<String>,
    ) -> Result<Mail> {
        let queue = store.broker();
        let names = match directory {
            Some(_) => self.names.get(changes, || queue.mailboxes())?,
            None => queue.mailboxes()?.into(),
        };
        let is_listed = |name: &Name| names.binary_search(name).is_ok();
        self.mailboxes.retain(|name, _| is_listed(name));
        let home = parts::mailboxes_dir(&self.project);
        for name in names.iter() {
            self.mailboxes.entry(name.clone()).or_insert_with(|| {
                // Nothing here says what has changed on servers, and one look compares with nothing.
                let places = directory.filter(|_| self.looks_again);
                let places = places.map(|_| parts::mailbox_places(&home, name));
                Kept::of(places.unwrap_or_default())
            });
        }
        let glances = directory.map(Spool::glances).transpose()?;
        let post = Post { queue, directory: directory.zip(glances.as_ref()) };
        let mut known: Vec<(&Name, &mut Kept<SeenMailbox>)> = self.mailboxes.iter_mut().collect();
        let is_shared = directory.is_some() && !self.looks_again;
        let mut mail = Mail::default();
        for seen in read_all(&mut known, changes, post, is_shared) {
            let seen = match seen {
                // Removed since it was listed.
                Err(Error::NoMailbox { .. }) => continue,
                other => other?,
            };
            warnings.extend(seen.warning().cloned());
            mail.views.push(seen.view.clone());
            mail.held.extend(seen.held.iter().cloned());
            mail.dead.extend(seen.dead.iter().cloned());
            mail.notices.extend(seen.notices.iter().cloned());
        }
        Ok(mail)
    }
}

/// Reads mailboxes in their order. With `is_shared`, several threads read a share each if that is worth their start.
fn read_all(
    known: &mut [(&Name, &mut Kept<SeenMailbox>)],
    changes: &Changes,
    post: Post<'_>,
    is_shared: bool,
) -> Vec<Result<Arc<SeenMailbox>>> {
    let read = |(name, known): &mut (&Name, &mut Kept<SeenMailbox>)| {
        let seen = known.get(changes, || SeenMailbox::read(post, name));
        if seen.as_ref().is_ok_and(|seen| !seen.lasts()) {
            known.forget();
        }
        seen
    };
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (known.len() / MAILBOXES_A_THREAD).min(processors).min(THREADS_MAX);
    if !is_shared || threads < 2 {
        return known.iter_mut().map(read).collect();
    }
    let share = known.len().div_ceil(threads);
    thread::scope(|scope| {
        let started: Vec<_> = known
            .chunks_mut(share)
            .map(|share| scope.spawn(move || share.iter_mut().map(read).collect::<Vec<_>>()))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<_>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        started.into_iter().flat_map(join).collect()
    })
}

impl Roster {
    fn read(project: &Project) -> Result<Self> {
        let (members, errors) = project.roster().entries()?;
        Ok(Self { members, errors: errors.iter().map(ToString::to_string).collect() })
    }
}

#[cfg(test)]
mod tests {
    use ensemble_core::message::Envelope;
    use ensemble_core::spool::Options;

    use super::*;

    #[test]
    fn a_look_at_many_mailboxes_shows_each_once_and_in_order() {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::create(&home.path().join("queue"), Options::default()).unwrap();
        let count = 2 * MAILBOXES_A_THREAD + 3;
        for number in 0..count {
            let mailbox = spool.root().join("mailbox").join(format!("w{number:04}"));
            std::fs::create_dir(&mailbox).unwrap();
        }
        let last = Name::new(format!("w{:04}", count - 1)).unwrap();
        spool.publish(&Envelope::new(last.clone(), "x")).unwrap();
        spool.receive(&last, &last).unwrap().unwrap();
        let project = Project::discover(Some(spool.root())).unwrap();
        let once = Overview::look(&project, &spool, Some(&spool), Evidence::Watcher).unwrap();
        let names: Vec<&str> = once.mailboxes.iter().map(|view| view.name.as_str()).collect();
        assert_eq!((names.len(), names.is_sorted()), (count, true));
        assert_eq!(once.holds.keys().collect::<Vec<_>>(), [&last]);
        let look = |reader: &mut OverviewReader| {
            reader.look(&Changes::Anywhere, &spool, Some(&spool), Evidence::Watcher).unwrap()
        };
        let mut reader = OverviewReader::new(&project);
        let first = look(&mut reader);
        assert_eq!(format!("{:?}", first.mailboxes), format!("{:?}", once.mailboxes));
        std::fs::remove_dir(spool.root().join("mailbox/w0000")).unwrap();
        assert_eq!(look(&mut reader).mailboxes.len(), count - 1);
    }
}
