// Types that an author would write, beyond the template's.
package main

import (
	"time"

	"toolhold"
)

type base struct {
	ID   string    `json:"id" description:"Of the row."`
	Kind string    `json:"kind"`
	At   time.Time `json:"at,omitzero"`
}

type Page struct {
	Limit *int `json:"limit" minimum:"1" maximum:"50"`
}

type level string

type row struct {
	*Page
	base
	Kind   level           `json:"kind" enum:"low,high"`
	Tags   []string        `json:"tags,omitempty" enum:"a,b"`
	Scores map[int]float64 `json:"scores,omitempty"`
	Parent *base           `json:"parent"`
	Big    int64           `json:"big,string"`
	Dash   bool            `json:"-,"`
	Skip   chan int        `json:"-"`
	hidden int
}

type arguments struct {
	Page
	Rows  []row             `json:"rows" maxItems:"3"`
	Named map[string][]*row `json:"named,omitempty"`
	Extra any               `json:"extra,omitempty"`
}

type result struct {
	*Page
	Count int            `json:"count"`
	First *row           `json:"first"`
	Last  *row           `json:"last,omitempty"`
	Sums  map[string]int `json:"sums"`
}

func init() {
	toolhold.Export(toolhold.Tool{Name: "add", Description: "Adds rows up.", Run: toolhold.Func(add)})
}

func add(a arguments) (result, error) {
	added := result{Count: len(a.Rows), Page: nil}
	if len(a.Rows) > 0 {
		added.First = &a.Rows[0]
	}
	return added, nil
}

func main() {}
