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
		Name:        "word_frequency",
		Title:       "Word frequency",
		Description: "Counts how often each word occurs in a text and returns the most frequent ones.",
		Annotations: toolhold.ReadOnly | toolhold.Idempotent,
		Examples: []toolhold.Example{{
			Task:      "Which word is most frequent in: to be or not to be, to",
			Arguments: `{"text":"to be or not to be, to","top":1}`,
			Output:    `{"words":[{"word":"to","count":3}],"distinct":4}`,
			Answer:    `The most frequent word is "to": it occurs 3 times.`,
		}},
		Run: toolhold.Func(wordFrequency),
	})
}

// The arguments: the tags become the input schema. A pointer may be left out.
type arguments struct {
	Text string `json:"text" description:"The text to count in."`
	Top  *int   `json:"top" minimum:"1" maximum:"1000" description:"How many words to return (10 if not given)."`
}

type counted struct {
	Word  string `json:"word"`
	Count int    `json:"count"`
}

// The result: becomes the output schema.
type result struct {
	Words    []counted `json:"words" description:"The most frequent words, most frequent first."`
	Distinct int       `json:"distinct" description:"How many different words there are."`
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
