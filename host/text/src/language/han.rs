//! Chinese and Japanese, which share characters.

use super::prose::Word;
use unicode_script::{Script, UnicodeScript as _};

/// Minimum number of characters of a text. One alone is a sign.
const MIN_CHARACTERS: usize = 2;

/// Minimum number of kana for each character that only Chinese writes: a text with fewer is Chinese about a Japanese word,
/// or the other way round.
const KANA_RATIO: usize = 8;

/// Characters that Japanese writes, in forms that no Chinese standard has (GB 2312, Big5).
const JAPANESE: &str = "気円図対広転発売読変検総鉄単経済続戦様応権駅駆団実関従帰歯険験圏巻働込枠畑匂峠辻払仏価処両乗仮児労効\
    勧営厳収囲圧塩壊増壱寛専巣帯庁弐弾徳恵悪懐戯択拠拡挙捜掲揺摂暁暦栄桜桟楽歓殻毎涙渇渉渋渓満滝瀬焼犠獣\
    痩県砕稲穂竜粋粛絵継縁縄繊聴脳臓舎荘薬蔵蛍覚観訳譲賛軽辺遅郷酔醸釈銭録陥隠隣雑霊頼顕髪鶏麺黙齢";

/// Characters that Chinese writes: simplified forms that no Japanese standard has (JIS X 0208), and words of grammar and
/// traditional forms that Japanese does not use today.
const CHINESE: &str = "个訂們麼來灣裡是我你她它這嗎吧哪怎跟沒讓幫說對譯寫單檢圖價數會國學發變讀賣關應點號當兩實體處廣與參總氣轉經續樣權驛\
    團從帶吗呢请这么们给您还让帮谁为说对译删错误订单计电话语页图库测试链传输应该过时间问题级边发议长门开\
    关东车马鸟鱼龙书买卖读记认识讲论词诗课谢设访证评诉详谈调费资质货购贵贺赛轻载较办动务劳华协历压县变吴\
    启员响团园围场块处备复够头夹奖妇孙宁实审宪宾导尔尝层岁岛帐师带归录总战户扩扫扬护报择拟拥挡挤挥损换摄\
    显晓术杂权极构标树样桥检欢汇汉汤济浏润涨渐满灵炼热爱爷狮环现玛疗监盘础确码种稳穷窝竞笔签简类紧红约纪\
    纯纸纲纳纵纷纽线练组细织终经结绍绘络绝统绩绪续绿缓编缘缩罗罚职联聪肃肠肤胜脑节苏药获营虑虽补见观规视\
    览觉讯频骤贴阅创龄";

/// Tag of the language of these words of Chinese characters and kana.
pub(super) fn weigh(words: &[&Word<'_>]) -> Option<&'static str> {
    let characters = || words.iter().flat_map(|word| word.text.chars());
    characters().nth(MIN_CHARACTERS - 1)?;
    let kana = characters()
        .filter(|c| matches!(c.script(), Script::Hiragana | Script::Katakana))
        .count();
    let chinese = characters().filter(|c| CHINESE.contains(*c)).count();
    let japanese = characters().filter(|c| JAPANESE.contains(*c)).count();
    // One kana alone is an ornament of Chinese names (の).
    match (kana, japanese, chinese) {
        (2.., _, _) if kana >= KANA_RATIO * chinese => Some("ja"),
        (1, _, 0) | (0, 1.., 0) => Some("ja"),
        (0, 0, 1..) => Some("zh"),
        _ => None,
    }
}
