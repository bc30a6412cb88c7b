// A Toolhold module: one tool. Replace it with yours; README.md says how to build and try it.
//
// What runs before a call (package variables, init) runs in every call: keep it short. Every call
// is a fresh instance.
package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"toolhold"
)

// Descriptions are for the model: it chooses and fills the tool by them.
func init() {
	toolhold.Export(toolhold.Tool{
		Name:         "word_frequency",
		Title:        "Word frequency",
		Description:  "Counts how often each word occurs in a text and returns the most frequent ones.",
		InputSchema:  inputSchema,
		OutputSchema: outputSchema,
		Annotations:  toolhold.ReadOnly | toolhold.Idempotent,
		Examples: []toolhold.Example{{
			Task:      "Which word is most frequent in: to be or not to be, to",
			Arguments: `{"text":"to be or not to be, to","top":1}`,
			Output:    `{"words":[{"word":"to","count":3}],"distinct":4}`,
			Answer:    `The most frequent word is "to": it occurs 3 times.`,
		}},
		Run: toolhold.Func(wordFrequency),
	})
}

const inputSchema = `{
	"type": "object",
	"properties": {
		"text": {"type": "string", "description": "The text to count in."},
		"top": {
			"type": "integer",
			"minimum": 1,
			"maximum": 1000,
			"description": "How many words to return (10 if not given)."
		}
	},
	"required": ["text"],
	"additionalProperties": false
}`

const outputSchema = `{
	"type": "object",
	"properties": {
		"words": {
			"type": "array",
			"description": "The most frequent words, most frequent first.",
			"items": {
				"type": "object",
				"properties": {"word": {"type": "string"}, "count": {"type": "integer"}},
				"required": ["word", "count"]
			}
		},
		"distinct": {"type": "integer", "description": "How many different words there are."}
	},
	"required": ["words", "distinct"]
}`

type arguments struct {
	Text string `json:"text"`
	Top  *int   `json:"top"`
}

type counted struct {
	Word  string `json:"word"`
	Count int    `json:"count"`
}

type result struct {
	Words    []counted `json:"words"`
	Distinct int       `json:"distinct"`
}

func wordFrequency(arguments arguments) (result, error) {
	top := 10
	if arguments.Top != nil {
		top = *arguments.Top
	}
	if top < 1 || top > 1000 {
		return result{}, toolhold.Correctable("`top` must be between 1 and 1000")
	}
	word := regexp.MustCompile(`[\p{L}\p{N}]+(?:'[\p{L}\p{N}]+)*`)
	counts := map[string]int{}
	for _, found := range word.FindAllString(strings.ToLower(arguments.Text), -1) {
		counts[found]++
	}
	words := make([]counted, 0, len(counts))
	for found, count := range counts {
		words = append(words, counted{found, count})
	}
	slices.SortFunc(words, func(a, b counted) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Word, b.Word))
	})
	return result{words[:min(top, len(words))], len(counts)}, nil
}

func main() {}
