//! Chinese and Japanese, which share characters.

use super::prose::Word;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;
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

/// Characters that Chinese writes: the frequent simplified forms (GB 2312, level 1) that no Japanese standard has (JIS X 0208),
/// and words of grammar and traditional forms that Japanese does not use today.
const CHINESE: &str = "气个訂們麼來灣裡是我它這嗎怎跟沒讓幫說對譯寫單檢圖價數會國學發變讀賣關應點號當兩實體處廣與參總氣轉經續樣權驛團\
    從帶浏于很从并无网决广儿听价孩找吃哥愿仍哈坏怕抓弃嘛哦档挂呀粮苹咋做啊哎唉皑蔼爱氨胺肮盎翱袄扒吧疤靶坝罢爸摆\
    败扳颁办绊帮梆绑镑谤饱报鲍辈贝钡狈备惫苯绷甭泵蹦笔毕毙毖币痹闭边编贬变辩辫标膘鳖憋别瘪濒滨宾摈饼拨钵铂脖驳补\
    步财睬踩惭灿苍舱仓沧糙厕侧测层蹭茬查碴搽诧搀掺馋谗缠铲产阐颤场尝长偿肠畅钞巢吵车扯彻澈郴尘沉陈衬撑惩诚骋迟驰\
    齿炽宠踌筹绸瞅橱锄雏滁础储搐处传疮闯创锤纯绰词赐聪囱丛凑蹿篡窜错达瘩傣带贷单郸掸氮惮诞弹挡荡捣岛导德蹬瞪凳邓\
    敌涤翟递缔颠掂滇碘靛垫电惦碉叼刁钓调爹碟谍叠盯钉顶锭订丢东懂动栋侗冻陡犊读赌镀妒锻缎兑队对墩吨顿囤钝掇哆夺垛\
    躲朵跺剁鹅额讹恶饿尔饵洱贰发罚阀珐矾钒烦贩饭仿访纺啡飞诽废费酚纷坟奋份愤粪丰枫锋风疯冯缝讽凤肤辐氟涪抚辅赋复\
    负讣妇缚噶嘎该钙溉赶秆赣冈刚钢纲岗篙糕搞镐搁鸽胳疙阁铬给埂龚宫巩贡钩沟构购够菇咕蛊顾剐关观馆惯贯逛规归龟闺轨\
    诡柜贵刽辊滚锅过氦骇憨韩焊汉夯嚎郝菏阂鹤贺嘿黑哼轰烘鸿红壶唬护沪户哗华划话怀欢环还缓换唤痪焕涣磺谎挥辉毁贿秽\
    烩汇讳诲绘荤浑伙获货祸击圾积饥讥鸡姬绩缉极辑级挤蓟剂济计记际继纪夹荚颊贾钾驾歼监坚笺间艰缄茧检碱硷拣捡简俭减\
    槛鉴贱见键舰剑饯渐溅涧浆桨奖讲酱胶浇骄娇搅铰矫侥饺缴绞轿较揭秸阶节洁结诫紧锦仅谨进靳烬劲荆鲸惊经颈镜痉竞净揪\
    纠驹举锯俱剧鹃绢撅觉诀绝钧军骏咖卡开凯砍炕烤坷棵磕颗壳渴课啃垦恳抠库裤垮挎块筷侩宽矿眶旷亏盔岿窥馈溃捆扩阔垃\
    蜡腊啦赖蓝栏拦篮阑兰澜谰揽览懒缆烂滥捞劳佬涝乐镭垒类棱篱离鲤荔丽厉砾历傈沥俩联莲连镰涟帘敛脸链炼练两辆晾谅疗\
    辽撂镣猎磷临邻鳞赁拎龄铃灵岭领另馏刘龙聋咙笼垄拢陇娄搂篓卢颅庐掳卤虏鲁赂潞录陆驴吕铝侣缕虑氯滤绿峦挛孪滦抡轮\
    伦仑沦纶论萝罗逻锣箩骡骆络妈玛码蚂马骂吗买卖迈瞒馒满谩锚铆贸么玫酶霉镁每门闷们锰眯醚谜觅幂绵缅瞄庙灭抿悯闽鸣\
    铭谬摹蘑谋亩哪呐钠纳氖奶难囊挠脑恼闹淖呢馁妮拟你腻蔫撵酿鸟聂孽啮镊镍您柠狞宁拧泞扭钮纽脓浓农疟挪诺鸥呕沤啪趴\
    帕盘盼乓庞耪刨跑呸赔喷砰抨鹏碰坯毗啤骗飘撇拼频贫乒评泼颇扑铺莆谱柒沏歧脐齐骑岂启讫掐牵扦钎铅迁签谦钱钳谴堑枪\
    呛墙蔷强抢锹桥瞧乔侨撬翘俏窍钦亲轻氢倾擎氰顷请庆琼穷趋驱龋颧权醛劝炔瘸鹊榷确瓤嚷让饶扰绕热韧认纫扔荣绒软锐闰\
    润萨鳃赛叁伞嗓丧搔骚扫涩杀纱傻啥煞筛删闪陕赡缮墒伤赏晌捎烧绍赊摄慑涉设砷绅审婶肾渗绳胜圣师狮诗时蚀实识驶势适\
    释饰视试瘦兽输书赎术树竖耍摔甩帅拴谁顺说硕烁丝饲耸怂颂讼诵擞苏僳诉肃虽绥岁孙损缩琐锁塌她獭挞蹋酞态坍摊贪瘫滩\
    坛谭谈碳叹汤搪膛倘躺趟烫绦讨腾誊踢锑题惕屉舔贴铁厅烃酮铜彤捅统偷头秃图涂团颓蜕吞拖鸵驮驼椭挖洼袜顽烷晚惋韦违\
    桅围为潍维苇伟伪纬喂谓卫闻纹稳问嗡挝蜗涡窝卧呜钨乌污诬芜吴捂坞雾务误硒矽嘻锡牺烯袭习媳铣戏细虾辖吓锨鲜纤贤衔\
    闲显险现县馅羡宪线厢镶乡详响项萧嚣销晓啸协胁谐泻谢锌衅兴邢汹锈绣须许酗绪续轩悬选癣绚勋询寻驯汛训讯逊压鸦鸭丫\
    蚜哑亚讶阉盐严颜阎艳厌砚唁焰谚验鸯杨扬疡阳氧养样摇尧窑谣舀药爷页业铱颐遗仪胰蚁艺亿忆义诣议谊译异绎荫阴银饮隐\
    樱婴鹰应缨莹萤营荧蝇赢颖哟拥佣臃痈恿优忧邮铀诱榆舆俞鱼渔娱屿语喻狱预驭鸳辕园员圆缘远约跃钥阅郧匀陨运蕴酝晕砸\
    杂灾载咱攒暂赞赃脏凿枣皂灶责择则泽贼增赠喳轧铡闸眨栅榨诈斋债毡詹盏斩辗崭蘸栈战绽漳张涨帐账胀赵蛰辙锗这贞针侦\
    诊镇阵挣睁狰怔帧郑证吱织职执值侄纸挚掷帜质盅钟终种肿众诌轴皱骤诸诛烛拄瞩蛀贮铸驻拽专砖转赚桩妆锥赘坠缀谆桌茁\
    浊兹资淄籽渍鬃综总纵邹揍诅组钻";

/// Words of Chinese that have no character of [`CHINESE`], and that no compounds of Japanese contain, nor two of them side by side.
/// In a text without kana they are Chinese.
const CHINESE_WORDS: &str = "如何学 如何用 如何使用 如何做 如何写 如何画 如何去 如何才能 如何提高 如何制作 \
    几 有多少 多少天 多少元 多少钱 多少公里 有多大 有多高 有多重 有多深 有多快 有多冷 要多久 多久能 多久到 \
    今天 明天 昨天 早上 早安 周末 星期 会下雨 要下雨 不下雨 在下雨 下雨了 下雨天 会下雪 下雪了 没有 不知道 一些 \
    那里 那些 推荐 写一首 写一段 写一封 写一份 写首 写段 写封 写份 写句 唱首 唱一首 来首 去了 来了 到了 \
    好了 雨了 病了 累了 忘了 丢了 走了 哭了 笑了 醒了 掉了 停了 用了 花了 不了 多了 少了 冷了 最好的 最大的 \
    最多的 最高的 最小的 最新的 最低的 最近的 最早的 最快的 最短的 最美的 最便宜 手机 机票 大家好 打折 \
    法国的 法国人 法国首都 美国的 美国人 美国首都 俄国的 北京的 上海的 月球的 的平方 的立方 照片 地址 句子 早餐 \
    午餐 晚餐 番茄 土豆 蛋糕 重命名 所有文件 把文 人口多少 最常用 一只 国的首都 日本的首都 \
    国的人口多 国的人口有";

/// A word of Chinese before others of a text. Behind them, Japanese has it, too.
const CHINESE_BEGIN: &str = "如何";

/// A word of Chinese at the end of a text. Before other words, Japanese has its characters, too.
const CHINESE_END: &str = "国的人口";

/// Compounds of Japanese that have a character of [`CHINESE`], or a part of one of [`CHINESE_WORDS`]. They say nothing of the
/// language.
const JAPANESE_COMPOUNDS: &str = "是正 是非 是認 国是 自我 我慢 我流 我孫子 無我 没我 几帳面 如何様 只今 昨今 古今 説明 証明 声明 解明 判明 \
    照明 発明 文明 透明 不明 未明 完了 終了 修了 満了 未了 魅了 校了 投了 読了 了解 了承 了見 \
    明天皇 明天神 明天然 明天満 的中率 最高的中 最多的中 全国的";

static ONLY_JAPANESE: LazyLock<HashSet<char>> = LazyLock::new(|| JAPANESE.chars().collect());
static ONLY_CHINESE: LazyLock<HashSet<char>> = LazyLock::new(|| CHINESE.chars().collect());

/// Tag of the language of these words of Chinese characters and kana.
pub(super) fn weigh(words: &[&Word<'_>]) -> Option<&'static str> {
    let characters = || words.iter().flat_map(|word| word.text.chars());
    characters().nth(MIN_CHARACTERS - 1)?;
    let kana = characters()
        .filter(|c| matches!(c.script(), Script::Hiragana | Script::Katakana))
        .count();
    let japanese = characters().filter(|c| ONLY_JAPANESE.contains(c)).count();
    // Each compound is searched for once, not in each word.
    let text: Vec<&str> = words.iter().map(|word| word.text).collect();
    let text = text.join(" ");
    let telling = without_compounds(&text);
    let chinese = telling.chars().filter(|c| ONLY_CHINESE.contains(c)).count();
    // One kana alone is an ornament of Chinese names (の).
    match (kana, japanese, chinese) {
        (2.., _, _) if kana >= KANA_RATIO * chinese => Some("ja"),
        (1, _, 0) | (0, 1.., 0) => Some("ja"),
        (0, 0, 1..) => Some("zh"),
        (0, 0, 0) if telling.split(' ').any(has_chinese_word) => Some("zh"),
        _ => None,
    }
}

/// The text with a comma in the place of each compound of Japanese: what stands beside one neither begins nor ends a word.
fn without_compounds(text: &str) -> Cow<'_, str> {
    let compounds = JAPANESE_COMPOUNDS.split(' ');
    compounds.fold(Cow::Borrowed(text), |text, compound| {
        if text.contains(compound) {
            text.replace(compound, ",").into()
        } else {
            text
        }
    })
}

fn has_chinese_word(text: &str) -> bool {
    let begins = text.strip_prefix(CHINESE_BEGIN);
    begins.is_some_and(|rest| rest.starts_with(char::is_alphabetic))
        || text.ends_with(CHINESE_END)
        || CHINESE_WORDS.split(' ').any(|word| text.contains(word))
}
