// Looks into zip archives: lists entries and reads one, without unpacking anything to disk.
package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"zip/archive"
	"toolhold"
)

const (
	// What an answer holds at most: a part of a model's context.
	maxBytes   = 64 << 10
	maxEntries = 500
	// Where the host shows the granted directory, as module.toml asks.
	root = "/data"
)

func init() {
	toolhold.Export(listTool, readTool)
}

func main() {}

const source = `
	"path": {"type": "string", "description": "The archive, relative to the granted directory."},
	"base64": {"type": "string", "description": "The archive itself in base64, instead of a path."}`

var listTool = toolhold.Tool{
	Name:  "list",
	Title: "List a zip archive",
	Description: "Lists the entries of a zip archive with their sizes, and warns of names that lead out of the " +
		"folder, of bombs and of duplicates. Give either `path` or `base64`.",
	InputSchema: `{"type": "object", "properties": {` + source + `,
		"offset": {"type": "integer", "minimum": 0, "description": "How many entries to skip."}
	}, "additionalProperties": false}`,
	OutputSchema: `{"type": "object", "properties": {
		"entries": {"type": "array", "items": {"type": "object", "properties": {
			"name": {"type": "string"},
			"directory": {"type": "boolean"},
			"size": {"type": "integer", "description": "Bytes when unpacked, as the archive claims."},
			"compressed": {"type": "integer", "description": "Bytes in the archive."},
			"modified": {"type": "string"},
			"warnings": {"type": "array", "items": {"type": "string"}}
		}, "required": ["name", "directory", "size", "compressed"]}},
		"total": {"type": "integer", "description": "How many entries there are."},
		"next_offset": {"type": "integer", "description": "Where the rest begins, if there is more."},
		"warnings": {"type": "array", "items": {"type": "string"}}
	}, "required": ["entries", "total"]}`,
	Annotations: toolhold.ReadOnly | toolhold.Idempotent,
	Examples: []toolhold.Example{{
		Task:      "What is in report.zip?",
		Arguments: `{"path":"report.zip"}`,
		Output: `{"entries":[{"name":"notes.txt","directory":false,"size":10,"compressed":10,` +
			`"modified":"2026-03-01T09:30:00Z"}],"total":1}`,
		Answer: "One file: notes.txt, 10 bytes.",
	}},
	Run: toolhold.Func(list),
}

var readTool = toolhold.Tool{
	Name:  "read",
	Title: "Read from a zip archive",
	Description: "Unpacks one entry of a zip archive and returns it, as text if it is text and in base64 otherwise. " +
		"Use a name as `list` gave it. If `next_offset` comes back there is more: call again with it.",
	InputSchema: `{"type": "object", "properties": {` + source + `,
		"entry": {"type": "string", "description": "The entry's name."},
		"offset": {"type": "integer", "minimum": 0, "description": "How many unpacked bytes to skip."},
		"limit": {"type": "integer", "minimum": 16, "maximum": 65536,
			"description": "How many bytes to return at most (65536 if not given)."}
	}, "required": ["entry"], "additionalProperties": false}`,
	OutputSchema: `{"type": "object", "properties": {
		"text": {"type": "string"},
		"base64": {"type": "string", "description": "The content, if it is not text."},
		"next_offset": {"type": "integer"}
	}}`,
	Annotations: toolhold.ReadOnly | toolhold.Idempotent,
	Examples: []toolhold.Example{{
		Task:      "What does notes.txt in report.zip say?",
		Arguments: `{"path":"report.zip","entry":"notes.txt"}`,
		Output:    `{"text":"Call Ada.\n"}`,
		Answer:    "It says: Call Ada.",
	}},
	Run: toolhold.Func(read),
}

type place struct {
	Path   *string `json:"path"`
	Base64 *string `json:"base64"`
}

type listArguments struct {
	place
	Offset int `json:"offset"`
}

type listed struct {
	Entries    []archive.Entry `json:"entries"`
	Total      int             `json:"total"`
	NextOffset int             `json:"next_offset,omitempty"`
	Warnings   []string        `json:"warnings,omitempty"`
}

type readArguments struct {
	place
	Entry  string `json:"entry"`
	Offset int64  `json:"offset"`
	Limit  *int64 `json:"limit"`
}

type content struct {
	Text       *string `json:"text,omitempty"`
	Base64     *string `json:"base64,omitempty"`
	NextOffset int64   `json:"next_offset,omitempty"`
}

func list(arguments listArguments) (listed, error) {
	opened, err := arguments.open()
	if err != nil {
		return listed{}, err
	}
	entries, total := opened.List(arguments.Offset, maxEntries)
	result := listed{Entries: entries, Total: total, Warnings: opened.Warnings()}
	if next := arguments.Offset + len(entries); next < total {
		result.NextOffset = next
	}
	return result, nil
}

func read(arguments readArguments) (content, error) {
	opened, err := arguments.open()
	if err != nil {
		return content{}, err
	}
	limit := int64(maxBytes)
	if arguments.Limit != nil {
		limit = *arguments.Limit
	}
	bytes, more, err := opened.Read(arguments.Entry, arguments.Offset, limit)
	if err != nil {
		return content{}, toolhold.Correctable("%v", err)
	}
	result := content{}
	if text, ok := archive.Text(bytes, more); ok {
		result.Text, bytes = &text, bytes[:len(text)]
	} else {
		encoded := base64.StdEncoding.EncodeToString(bytes)
		result.Base64 = &encoded
	}
	if more {
		result.NextOffset = arguments.Offset + int64(len(bytes))
	}
	return result, nil
}

func (p place) open() (*archive.Archive, error) {
	if (p.Path == nil) == (p.Base64 == nil) {
		return nil, toolhold.Correctable("give either `path` or `base64`")
	}
	if p.Base64 != nil {
		data, err := base64.StdEncoding.DecodeString(*p.Base64)
		if err != nil {
			return nil, toolhold.Correctable("`base64` is not base64: %v", err)
		}
		opened, err := archive.Open(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return nil, toolhold.Correctable("%v", err)
		}
		return opened, nil
	}
	return openFile(*p.Path)
}

// The file stays open: the instance ends with the call.
func openFile(name string) (*archive.Archive, error) {
	if _, err := os.Stat(root); err != nil {
		return nil, toolhold.Fatal("no directory is granted to this module: ask the operator to grant it one as `/data`, " +
			"or pass the archive as `base64`")
	}
	inside := path.Clean(strings.TrimPrefix(name, root+"/"))
	if !fs.ValidPath(inside) {
		return nil, toolhold.Correctable("`%s` is outside the granted directory; use a relative path or one under %s", name, root)
	}
	file, err := os.Open(path.Join(root, inside))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, toolhold.Correctable("`%s` does not exist", name)
	}
	if err != nil {
		return nil, toolhold.Correctable("cannot open `%s`: %v", name, err)
	}
	information, err := file.Stat()
	if err != nil || !information.Mode().IsRegular() {
		return nil, toolhold.Correctable("`%s` is not a file", name)
	}
	opened, err := archive.Open(file, information.Size())
	if err != nil {
		return nil, toolhold.Correctable("`%s`: %v", name, err)
	}
	return opened, nil
}
