//! The banned words, each sense with an example of a better wording. The eight senses are those of seed 002's Japanese
//! table; all three languages are equally strict, sense by sense.

use serde::{Deserialize, Serialize};

/// A language of the word lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Japanese.
    Ja,
    /// English.
    En,
    /// Chinese, simplified and traditional.
    Zh,
}

impl Language {
    pub const ALL: [Self; 3] = [Self::Ja, Self::En, Self::Zh];
}

/// A further condition for a word to be vague.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordGuard {
    None,
    /// A number follows: `about 30`, but not `a report about locks`.
    NumberAfter,
    /// A number or its unit precedes: `30个左右`, but not `左右对齐`.
    NumberBefore,
    /// Several things follow, or `of`: `most tests`, but not `the most recent one` or `at most`.
    ThingsAfter,
    /// None of these precedes directly: `内部分布` is `内部` and `分布`.
    NotAfter(&'static str),
    /// None of these follows directly: `一部手机` is one telephone.
    NotBefore(&'static [&'static str]),
}

/// One of the seed's eight senses in one language.
pub(super) struct VagueSense {
    pub(super) language: Language,
    words: &'static str,
    pub(super) guard: WordGuard,
    /// An example of a better wording.
    pub(super) instead: &'static str,
}

impl VagueSense {
    pub(super) fn words(&self) -> impl Iterator<Item = &'static str> {
        listed(self.words)
    }
}

/// The texts of a list that commas separate.
pub(super) fn listed(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split(", ")
}

const fn sense(
    language: Language,
    words: &'static str,
    guard: WordGuard,
    instead: &'static str,
) -> VagueSense {
    VagueSense { language, words, guard, instead }
}

use Language::{En, Ja, Zh};
use WordGuard::{NotAfter, NotBefore, NumberAfter, NumberBefore, ThingsAfter};

/// Characters after which 部分 is part of another word, or is specific.
const PART_OF_A_WORD: &str = "全内內外局底顶頂头頭尾各本该該這这那此哪两兩二三四五六七八九十个個成大0123456789０１２３４５６７８９";
const MEASURED: &[&str] =
    &["手机", "电影", "电话", "小说", "作品", "法律", "车", "电视", "书", "動畫", "電影", "手機"];

pub(super) const SENSES: &[VagueSense] = &[
    // The first word of each is that of seed 002's table.
    sense(
        Ja,
        "多発, 頻発, 頻繁に, たびたび, 度々, 何度も, しばしば, 時々, ときどき, 定期的に, たまに, 稀に",
        WordGuard::None,
        "3回発生",
    ),
    sense(Ja, "一部", NotBefore(MEASURED), "src/api/auth.py の 45-52行目"),
    sense(
        Ja,
        "部分的に, 大半, 大部分の, 大部分が, 大部分は, 大多数の, 大多数が, 所々, ところどころ",
        WordGuard::None,
        "src/api/auth.py の 45-52行目",
    ),
    sense(Ja, "適宜, 必要に応じて, 随時, 適当に", WordGuard::None, "5分後に再確認"),
    sense(
        Ja,
        "概ね, おおむね, 大体, だいたい, ほぼ, ほとんど, 殆ど, およそ",
        WordGuard::None,
        "87%",
    ),
    sense(Ja, "程度, くらい, ぐらい, 前後, ほど", NumberBefore, "87%"),
    sense(Ja, "約", NumberAfter, "87%"),
    sense(
        Ja,
        "いくつか, 幾つか, 複数の, 大量の, 少数の, 数件, 数個, 数回, 数箇所, たくさん, 沢山, 多くの",
        WordGuard::None,
        "4件",
    ),
    sense(
        Ja,
        "しばらく, 暫く, まもなく, 間もなく, そのうち, 後ほど, 当面, 最近は, 最近の, 近日中, 近々, 近いうち, \
         近頃, 早急に, 至急, なるべく早く, できるだけ早く, 可及的速やかに, そろそろ, やがて, 数日, 数時間",
        WordGuard::None,
        "30秒後",
    ),
    sense(Ja, "偏り, 偏って, 偏った, 偏在", WordGuard::None, "Worker-2に4件集中（全体の80%）"),
    sense(
        Ja,
        "既知の問題, 既知の不具合, 既知のバグ, 既知の課題",
        WordGuard::None,
        "Issue #123 で報告済み",
    ),
    // Sense: frequency.
    sense(
        En,
        "frequently, often, repeatedly, occasionally, sometimes, many times, several times, \
         from time to time, a lot, lots of, many, numerous, \
         regularly, periodically, rarely, seldom, now and then, every so often, once in a while",
        WordGuard::None,
        "3 times",
    ),
    // Sense: part of a whole.
    sense(
        En,
        "some, somewhat, partially, partly, a portion of, parts of, in places, the majority of",
        WordGuard::None,
        "src/api/auth.py:45-52",
    ),
    sense(En, "most", ThingsAfter, "14 of 16 tests (87%)"),
    // Sense: condition.
    sense(
        En,
        "as appropriate, where appropriate, when appropriate, if appropriate, as needed, \
         as necessary, if necessary, when necessary, as required",
        WordGuard::None,
        "again in 5 minutes",
    ),
    // Sense: approximation.
    sense(
        En,
        "approximately, roughly, mostly, most of the time, largely, generally, more or less, \
         nearly, almost, by and large, basically, usually",
        WordGuard::None,
        "87%",
    ),
    sense(En, "about, around, close to, circa", NumberAfter, "87%"),
    // Sense: number.
    sense(
        En,
        "several, a few, few, a couple, a couple of, a number of, a handful of, various, multiple, \
         dozens of, countless",
        WordGuard::None,
        "4 files",
    ),
    // Sense: duration.
    sense(
        En,
        "a while, for a while, some time, a moment, a bit, shortly, soon, later on, for now, \
         eventually, recently, lately, nowadays, asap, as soon as possible, as soon as you can, \
         before long, in the near future, in due course, at some point, sooner or later, \
         in a timely manner, at your earliest convenience",
        WordGuard::None,
        "in 30 seconds",
    ),
    // Sense: distribution.
    sense(
        En,
        "uneven, unevenly, imbalance, imbalanced, unbalanced, lopsided, skewed, biased",
        WordGuard::None,
        "4 of 5 tasks (80%) went to worker-2",
    ),
    // Sense: known problem.
    sense(
        En,
        "known issue, known issues, known problem, known problems, known bug, known bugs, \
         known limitation, known limitations",
        WordGuard::None,
        "reported as issue #123",
    ),
    // The same eight senses in Chinese.
    sense(
        Zh,
        "多发, 频发, 频繁, 頻繁, 经常, 經常, 多次, 屡次, 屢次, 时常, 偶尔, 偶爾, 不时, 不時, \
         很少",
        WordGuard::None,
        "发生 3 次",
    ),
    sense(Zh, "有时, 有時", NotBefore(&["间", "間"]), "发生 3 次"),
    sense(Zh, "部分", NotAfter(PART_OF_A_WORD), "src/api/auth.py 第 45-52 行"),
    sense(
        Zh,
        "大部分, 绝大部分, 一部分, 某些, 有些, 部份",
        WordGuard::None,
        "src/api/auth.py 第 45-52 行",
    ),
    sense(
        Zh,
        "酌情, 视情况, 視情況, 适当, 適當, 适时, 適時, 必要时, 必要時, 按需",
        WordGuard::None,
        "5 分钟后再检查",
    ),
    sense(
        Zh,
        "大概, 大约, 大約, 大致, 基本上, 基本完成, 基本通过, 基本通過, 基本正常, 基本可用, 差不多, \
         几乎, 幾乎, 将近, 將近",
        WordGuard::None,
        "87%",
    ),
    sense(Zh, "左右, 上下", NumberBefore, "87%"),
    sense(Zh, "几个, 幾個, 几次, 几条, 几处", NotAfter("这那哪這"), "4 个"),
    sense(
        Zh,
        "若干, 多个, 多個, 大多数, 大多數, 绝大多数, 絕大多數, 少数, 少數, 一些, 好几, 好幾, 许多, 許多, 很多, 不少, \
         大量, 少量, 数个, 數個",
        WordGuard::None,
        "4 个",
    ),
    sense(
        Zh,
        "一会儿, 一會兒, 暂时, 暫時, 稍后, 稍後, 不久, 片刻, 一段时间, 一段時間, 过一阵, 近期, 近日, 近来, \
         近來, 尽快, 儘快, 盡快, 尽早, 儘早, 盡早, 早日, 及时, 及時, 迟早, 遲早, 有朝一日",
        WordGuard::None,
        "30 秒后",
    ),
    sense(
        Zh,
        "偏斜, 不均匀, 不均勻, 不均衡, 不平衡, 失衡, 偏重",
        WordGuard::None,
        "4 个任务（80%）集中在 worker-2",
    ),
    sense(
        Zh,
        "已知问题, 已知問題, 已知的问题, 已知的問題, 已知缺陷, 已知 bug, 已知bug",
        WordGuard::None,
        "已在 Issue #123 中报告",
    ),
];

/// Every banned word of all languages, for other tools and for measurements.
pub fn banned_words() -> Vec<&'static str> {
    SENSES.iter().flat_map(VagueSense::words).collect()
}

/// Longer texts that contain a banned word but are exact, or are another word; separated by commas.
pub(super) const EXACT: &str = "\
    第一部, 一部始終, 全一部, 一部屋, 一部上場, 多発性, いくつかか, 十一部, 一部リーグ, how many, \
    how often, as many as, that many, this many, too many arguments, too many open files, \
    too many requests, many-to-many, one-to-many, many-to-one, parts of speech, partially ordered, \
    契約, 予約, 節約, 制約, 規約, 要約, 条約, 公約, 集約, 誓約, 婚約, 最近傍, 不定期, \
    some or none, some and none, multiple of, multiple choice, multiple inheritance, \
    common multiple, multiple dispatch, as soon as, too few arguments, almost surely, \
    almost everywhere, unbalanced parenthes, unbalanced bracket, unbalanced brace, \
    unbalanced quote, unbalanced tag, unbalanced tree, a bit mask, a bit field, a bit flag, \
    a bit set, a bit vector, a bitmask, eventually consistent, eventual consistency, 第一部分, \
    按需加载, 按需加載, 括号不平衡, 不平衡树, 多次元, 适当性, 上下文, 上下界, 左右子树, 左右对齐, \
    组成部分, 組成部分, 多发性";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn japanese_has_the_table_of_the_seed() {
        let seed = [
            ("多発", "3回発生"),
            ("一部", "src/api/auth.py の 45-52行目"),
            ("適宜", "5分後に再確認"),
            ("概ね", "87%"),
            ("いくつか", "4件"),
            ("しばらく", "30秒後"),
            ("偏り", "Worker-2に4件集中（全体の80%）"),
            ("既知の問題", "Issue #123 で報告済み"),
        ];
        for (word, instead) in seed {
            let is_it =
                |sense: &VagueSense| sense.words().next() == Some(word) && sense.instead == instead;
            assert!(SENSES.iter().any(is_it), "{word}");
        }
    }

    #[test]
    fn every_language_has_eight_senses_without_duplicates() {
        let mut all: Vec<&str> = banned_words();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for language in Language::ALL {
            let senses = SENSES.iter().filter(|sense| sense.language == language).count();
            assert!(senses >= 8, "{language:?}: {senses}");
        }
    }
}
