//! Texts of the host for the person whose task it is, where a run has no answer of its own, or not all of it.
//!
//! Each is in the language of the task, and in English where the table has no other. They name no configuration key: the
//! person can change none. The developer's message is the error of the run.

use toolhold_protocol::completion::ReplyCut;
use toolhold_protocol::event::StopReason;

/// Reason for which a run has no whole answer, by what its user can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserText {
    /// A limit of steps, calls, time or cost was reached. It asks whether to go on.
    Unfinished,
    /// The task needs more tokens than are allowed. It asks for a part of the task.
    OutOfTokens,
    /// A shield blocked the input or the output. It asks for other words.
    Blocked,
    /// No reply of the model could be used, or it kept making a call that was refused. It asks for other words.
    Unusable,
    /// The run was cancelled. It asks what to do instead.
    Cancelled,
    /// The answer reached the token limit of a reply. It asks whether to write the rest.
    CutAnswer,
    /// The endpoint's content filter cut the answer. It asks for other words.
    FilteredAnswer,
}

/// The texts of one language.
struct Texts {
    tag: &'static str,
    unfinished: &'static str,
    out_of_tokens: &'static str,
    blocked: &'static str,
    unusable: &'static str,
    cancelled: &'static str,
    cut_answer: &'static str,
    filtered_answer: &'static str,
}

const ENGLISH: &Texts = &Texts {
    tag: "en",
    unfinished: "I have no answer yet: the work that is allowed for one request is used up. Shall I go on, or would you \
                 like to make the task smaller or more precise?",
    out_of_tokens: "I have no answer: the task needs more text than is allowed for one request. Which \
                    part of it should I work on first?",
    blocked: "I cannot answer this: a rule of this service does not allow it. Could you ask in other words, or for \
              something else?",
    unusable: "I have no answer: none of my replies could be used. Could you ask in other words, or for a smaller \
               part of the task?",
    cancelled: "I have no answer: the work on this request was stopped. What would you like me to do now?",
    cut_answer: "This answer is not whole: it has reached the length that is allowed for one reply. Shall I write the \
                 rest, or would you like a shorter answer?",
    filtered_answer: "This answer is not whole: the service of the model does not allow the rest of it. Could you ask in \
                      other words, or for something else?",
};

const TEXTS: &[&Texts] = &[
    ENGLISH,
    &Texts {
        tag: "ru",
        unfinished: "Ответа пока нет: работа, разрешённая для одного запроса, исчерпана. Продолжить, или вы хотите \
                     сократить либо уточнить задачу?",
        out_of_tokens: "Ответа нет: для задачи нужно больше текста, чем разрешено для одного запроса. С \
                        какой её части мне начать?",
        blocked: "Я не могу на это ответить: этого не позволяет правило сервиса. Не могли бы вы сформулировать вопрос \
                  иначе или спросить о другом?",
        unusable: "Ответа нет: ни один из полученных ответов модели не удалось использовать. Не могли бы вы \
                   сформулировать вопрос иначе или начать с меньшей части задачи?",
        cancelled: "Ответа нет: работа над этим запросом остановлена. Что мне сделать теперь?",
        cut_answer: "Это не весь ответ: он достиг длины, разрешённой для одного ответа модели. Написать продолжение, или \
                     вы хотите более короткий ответ?",
        filtered_answer: "Это не весь ответ: сервис модели не разрешает его остальную часть. Не могли бы вы \
                          сформулировать вопрос иначе или спросить о другом?",
    },
    &Texts {
        tag: "zh",
        unfinished: "还没有答案：一次请求允许的工作量已用完。要我继续吗？或者您想缩小任务范围、说得更具体一些？",
        out_of_tokens: "没有答案：这个任务需要的文本超出了一次请求允许的量。我应该先处理哪一部分？",
        blocked: "我无法回答：本服务的规则不允许。您能换一种说法，或者问别的问题吗？",
        unusable: "没有答案：模型的几次回复都无法使用。您能换一种说法，或者先提出任务的一小部分吗？",
        cancelled: "没有答案：这次请求的处理已被停止。接下来您希望我做什么？",
        cut_answer: "这个回答不完整：已达到一次回复允许的长度。要我继续写完吗？或者您想要一个更短的回答？",
        filtered_answer: "这个回答不完整：模型服务不允许其余的内容。您能换一种说法，或者问别的问题吗？",
    },
    &Texts {
        tag: "de",
        unfinished: "Ich habe noch keine Antwort: Die Arbeit, die für eine Anfrage erlaubt ist, ist aufgebraucht. Soll \
                     ich weitermachen, oder möchten Sie die Aufgabe verkleinern oder genauer fassen?",
        out_of_tokens: "Ich habe keine Antwort: Die Aufgabe braucht mehr Text, als für eine Anfrage erlaubt \
                        ist. Mit welchem Teil soll ich beginnen?",
        blocked: "Das kann ich nicht beantworten: Eine Regel dieses Dienstes erlaubt es nicht. Können Sie es anders \
                  formulieren oder etwas anderes fragen?",
        unusable: "Ich habe keine Antwort: Keine Antwort des Modells war zu gebrauchen. Können Sie es anders \
                   formulieren oder mit einem kleineren Teil der Aufgabe beginnen?",
        cancelled: "Ich habe keine Antwort: Die Arbeit an dieser Anfrage wurde angehalten. Was soll ich jetzt tun?",
        cut_answer: "Diese Antwort ist nicht vollständig: Sie hat die Länge erreicht, die für eine Antwort erlaubt ist. \
                     Soll ich den Rest schreiben, oder möchten Sie eine kürzere Antwort?",
        filtered_answer: "Diese Antwort ist nicht vollständig: Der Dienst des Modells erlaubt den Rest nicht. Können Sie \
                          es anders formulieren oder etwas anderes fragen?",
    },
    &Texts {
        tag: "fr",
        unfinished: "Je n’ai pas encore de réponse : le travail autorisé pour une demande est épuisé. Dois-je continuer, \
                     ou souhaitez-vous réduire ou préciser la tâche ?",
        out_of_tokens: "Je n’ai pas de réponse : la tâche demande plus de texte que ce qui est autorisé \
                        pour une demande. Par quelle partie dois-je commencer ?",
        blocked: "Je ne peux pas répondre : une règle de ce service ne le permet pas. Pouvez-vous formuler la question \
                  autrement, ou en poser une autre ?",
        unusable: "Je n’ai pas de réponse : aucune réponse du modèle n’était utilisable. Pouvez-vous formuler la \
                   demande autrement, ou commencer par une partie plus petite de la tâche ?",
        cancelled: "Je n’ai pas de réponse : le travail sur cette demande a été arrêté. Que souhaitez-vous que je \
                    fasse maintenant ?",
        cut_answer: "Cette réponse n’est pas complète : elle a atteint la longueur qui est autorisée pour une réponse. \
                     Dois-je écrire la suite, ou souhaitez-vous une réponse plus courte ?",
        filtered_answer: "Cette réponse n’est pas complète : le service du modèle ne permet pas d’écrire la suite. \
                          Pouvez-vous formuler la question autrement, ou en poser une autre ?",
    },
    &Texts {
        tag: "es",
        unfinished: "Todavía no tengo una respuesta: ya se hizo todo el trabajo permitido para una petición. \
                     ¿Quiere que continúe, o prefiere una tarea más pequeña o más precisa?",
        out_of_tokens: "No tengo respuesta: la tarea necesita más texto de lo permitido para una petición. \
                        ¿Por qué parte empiezo?",
        blocked: "No puedo responder a esto: una regla de este servicio no lo permite. ¿Puede preguntarlo de otra \
                  manera, o preguntar otra cosa?",
        unusable: "No tengo respuesta: ninguna respuesta del modelo se pudo usar. ¿Puede preguntarlo de otra manera, \
                   o empezar por una parte más pequeña de la tarea?",
        cancelled: "No tengo respuesta: el trabajo de esta petición se detuvo. ¿Qué quiere que haga ahora?",
        cut_answer: "Esta respuesta no está completa: ya tiene la longitud permitida para una respuesta. ¿Quiere que \
                     escriba el resto, o prefiere una respuesta más corta?",
        filtered_answer: "Esta respuesta no está completa: el servicio del modelo no permite el resto. ¿Puede \
                          preguntarlo de otra manera, o preguntar otra cosa?",
    },
];

impl From<ReplyCut> for UserText {
    fn from(cut: ReplyCut) -> Self {
        match cut {
            ReplyCut::Length => Self::CutAnswer,
            ReplyCut::Filter => Self::FilteredAnswer,
        }
    }
}

impl UserText {
    /// True if the run has failed, so that the text stands before the error and not in the place of an answer: what was refused
    /// is for developers.
    pub fn is_of_failure(self) -> bool {
        matches!(self, Self::Unusable | Self::Cancelled)
    }

    /// The text in the place of the answer of a run that ended for this reason, if there is one. None where the endpoint
    /// failed: its error is for developers.
    pub fn of(reason: StopReason) -> Option<Self> {
        match reason {
            StopReason::MaxSteps
            | StopReason::MaxToolCalls
            | StopReason::MaxCost
            | StopReason::Timeout => Some(Self::Unfinished),
            StopReason::TokenBudget => Some(Self::OutOfTokens),
            StopReason::Blocked => Some(Self::Blocked),
            StopReason::Unusable => Some(Self::Unusable),
            StopReason::Cancelled => Some(Self::Cancelled),
            StopReason::Output
            | StopReason::Planned
            | StopReason::Incomplete
            | StopReason::ToolCalls
            | StopReason::Model => None,
        }
    }

    /// The text in this language, by its BCP 47 tag: of `zh-Hant` and `zh` alike.
    pub fn in_language(self, tag: Option<&str>) -> &'static str {
        let primary = tag
            .and_then(|tag| tag.split('-').next())
            .unwrap_or_default();
        let texts = TEXTS
            .iter()
            .find(|texts| texts.tag.eq_ignore_ascii_case(primary));
        let texts = texts.copied().unwrap_or(ENGLISH);
        match self {
            Self::Unfinished => texts.unfinished,
            Self::OutOfTokens => texts.out_of_tokens,
            Self::Blocked => texts.blocked,
            Self::Unusable => texts.unusable,
            Self::Cancelled => texts.cancelled,
            Self::CutAnswer => texts.cut_answer,
            Self::FilteredAnswer => texts.filtered_answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_text::language::recognise;

    const ALL: [UserText; 7] = [
        UserText::Unfinished,
        UserText::OutOfTokens,
        UserText::Blocked,
        UserText::Unusable,
        UserText::Cancelled,
        UserText::CutAnswer,
        UserText::FilteredAnswer,
    ];

    #[test]
    fn each_text_is_in_its_language_asks_back_and_names_no_key() {
        for texts in TEXTS {
            for text in ALL.map(|text| text.in_language(Some(texts.tag))) {
                assert_eq!(recognise(text), Some(texts.tag), "{text}");
                assert!(text.ends_with(['?', '？']), "{text}");
                assert!(!text.contains(['_', '`']), "{text}");
                assert!(!text.contains("run."), "{text}");
            }
        }
    }

    #[test]
    fn each_end_without_an_answer_has_its_text() {
        for (reason, text) in [
            (StopReason::MaxSteps, Some(UserText::Unfinished)),
            (StopReason::MaxToolCalls, Some(UserText::Unfinished)),
            (StopReason::MaxCost, Some(UserText::Unfinished)),
            (StopReason::Timeout, Some(UserText::Unfinished)),
            (StopReason::TokenBudget, Some(UserText::OutOfTokens)),
            (StopReason::Blocked, Some(UserText::Blocked)),
            (StopReason::Unusable, Some(UserText::Unusable)),
            (StopReason::Cancelled, Some(UserText::Cancelled)),
            (StopReason::Output, None),
            (StopReason::Model, None),
        ] {
            assert_eq!(UserText::of(reason), text, "{reason:?}");
        }
    }

    #[test]
    fn other_languages_get_english() {
        for text in ALL {
            assert_eq!(text.in_language(None), text.in_language(Some("en")));
            assert_eq!(text.in_language(Some("xx")), text.in_language(Some("en")));
            assert_eq!(
                text.in_language(Some("ZH-Hant")),
                text.in_language(Some("zh"))
            );
        }
    }
}
