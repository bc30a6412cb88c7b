// The request of ../README.md in Go: net/http, over the transport of toolhold/web.
package main

import (
	"io"
	"net/http"
	"strings"

	"toolhold"
	_ "toolhold/web"
)

func init() {
	toolhold.Export(toolhold.Tool{
		Name:        "fetch",
		Title:       "Fetch",
		Description: "Sends a request and returns what the server answered.",
		InputSchema: inputSchema,
		Annotations: toolhold.OpenWorld,
		Run:         toolhold.Func(fetch),
	})
}

const inputSchema = `{
	"type": "object",
	"properties": {
		"url": {"type": "string", "description": "Where to send it, with https://."},
		"body": {"type": "string", "description": "What to post. Without it, the URL is got."}
	},
	"required": ["url"],
	"additionalProperties": false
}`

type arguments struct {
	URL  string  `json:"url"`
	Body *string `json:"body"`
}

type answer struct {
	Status int    `json:"status"`
	Type   string `json:"type"`
	Text   string `json:"text"`
}

func fetch(arguments arguments) (answer, error) {
	response, err := send(arguments)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	text := []rune(string(body))
	return answer{response.StatusCode, response.Header.Get("Content-Type"), string(text[:min(len(text), 1000)])}, nil
}

func send(arguments arguments) (*http.Response, error) {
	if arguments.Body == nil {
		return http.Get(arguments.URL)
	}
	return http.Post(arguments.URL, "text/plain", strings.NewReader(*arguments.Body))
}

func main() {}
