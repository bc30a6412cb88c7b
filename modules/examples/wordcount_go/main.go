// The word count of `modules/examples`, in Go: the standard library does it.
package main

import (
	"strings"
	"unicode/utf8"

	"toolhold"
)

func init() {
	toolhold.Export(toolhold.Tool{
		Name:  "count",
		Title: "Count words",
		Description: "Counts the words, lines and characters of a text and finds its longest word. " +
			"Use it instead of counting by eye.",
		InputSchema: `{"type":"object",
			"properties":{"text":{"type":"string","description":"The text to count in."}},
			"required":["text"],"additionalProperties":false}`,
		OutputSchema: `{"type":"object",
			"properties":{"words":{"type":"integer"},"lines":{"type":"integer"},
				"characters":{"type":"integer"},"longest":{"type":"string"}},
			"required":["words","lines","characters","longest"]}`,
		Annotations: toolhold.ReadOnly | toolhold.Idempotent,
		Examples: []toolhold.Example{{
			Task:      "How many words are in: the quick brown fox",
			Arguments: `{"text":"the quick brown fox"}`,
			Output:    `{"words":4,"lines":1,"characters":19,"longest":"quick"}`,
			Answer:    "There are 4 words.",
		}},
		Run: toolhold.Func(count),
	})
}

type arguments struct {
	Text string `json:"text"`
}

type counted struct {
	Words      int    `json:"words"`
	Lines      int    `json:"lines"`
	Characters int    `json:"characters"`
	Longest    string `json:"longest"`
}

func count(arguments arguments) (counted, error) {
	text := arguments.Text
	result := counted{Lines: strings.Count(text, "\n"), Characters: utf8.RuneCountInString(text)}
	if text != "" && !strings.HasSuffix(text, "\n") {
		result.Lines++
	}
	// unicode.IsSpace, which Fields cuts at, is the property White_Space.
	longest := 0
	for word := range strings.FieldsSeq(text) {
		result.Words++
		if length := utf8.RuneCountInString(word); length > longest {
			longest, result.Longest = length, word
		}
	}
	return result, nil
}

func main() {}
