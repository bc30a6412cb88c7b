// Package archive looks into zip archives that somebody else made: it bounds what they can cost and
// says what is odd about them. It writes nothing.
package archive

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"
)

const (
	// MaxEntries is how many entries are looked at; an archive may claim millions.
	MaxEntries = 10_000
	// MaxRatio is how many times its size an entry may claim to unpack to; deflate itself reaches
	// about 1030.
	MaxRatio = 200
	// MaxTotal is what an archive may claim to unpack to, in bytes.
	MaxTotal = 4 << 30
)

// Entry is one entry of an archive, as the archive claims it.
type Entry struct {
	Name       string   `json:"name"`
	Directory  bool     `json:"directory"`
	Size       uint64   `json:"size"`
	Compressed uint64   `json:"compressed"`
	Modified   string   `json:"modified,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`
}

// Archive is an open archive.
type Archive struct {
	reader *zip.Reader
}

// Open reads an archive's directory. The error is for the model.
func Open(from io.ReaderAt, size int64) (*Archive, error) {
	reader, err := zip.NewReader(from, size)
	// Go refuses unsafe names if asked to; here they are shown with a warning.
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, fmt.Errorf("not a zip archive: %w", err)
	}
	return &Archive{reader}, nil
}

// List describes the entries from the one numbered offset, and counts them all.
func (a *Archive) List(offset, limit int) (entries []Entry, total int) {
	total = len(a.reader.File)
	files := a.reader.File[min(offset, total):]
	entries = make([]Entry, 0, min(limit, len(files)))
	for _, file := range files[:min(limit, len(files), MaxEntries)] {
		entry := Entry{
			Name:       strings.ToValidUTF8(file.Name, "\uFFFD"),
			Directory:  file.FileInfo().IsDir(),
			Size:       file.UncompressedSize64,
			Compressed: file.CompressedSize64,
			Warnings:   warnings(file),
		}
		if !file.Modified.IsZero() {
			entry.Modified = file.Modified.UTC().Format("2006-01-02T15:04:05Z")
		}
		entries = append(entries, entry)
	}
	return entries, total
}

// Warnings are about the archive as a whole.
func (a *Archive) Warnings() []string {
	var found []string
	names := make(map[string]bool, min(len(a.reader.File), MaxEntries))
	var total uint64
	duplicates := 0
	for index, file := range a.reader.File {
		if index == MaxEntries {
			found = append(found, fmt.Sprintf("more than %d entries; only these were looked at", MaxEntries))
			break
		}
		total += min(file.UncompressedSize64, MaxTotal)
		if names[file.Name] {
			duplicates++
		}
		names[file.Name] = true
	}
	if total >= MaxTotal {
		found = append(found, "claims to unpack to 4 GiB or more: probably a bomb")
	}
	if duplicates > 0 {
		found = append(found, fmt.Sprintf("%d names occur more than once: programs differ in which they read", duplicates))
	}
	return found
}

// Read unpacks an entry from the byte offset, at most limit bytes; more says whether there is more.
// However large the entry claims to be, no more than that is kept in memory.
func (a *Archive) Read(name string, offset, limit int64) (content []byte, more bool, err error) {
	file := a.find(name)
	if file == nil {
		return nil, false, fmt.Errorf("there is no entry `%s`; list the archive to see what there is", name)
	}
	if file.FileInfo().IsDir() {
		return nil, false, fmt.Errorf("`%s` is a directory; name a file in it", name)
	}
	if suspicious(file) {
		return nil, false, fmt.Errorf("`%s` claims to unpack to %d times its size: probably a bomb, so it is not read",
			name, file.UncompressedSize64/max(file.CompressedSize64, 1))
	}
	if file.Flags&1 != 0 {
		return nil, false, fmt.Errorf("`%s` is encrypted and cannot be read here", name)
	}
	stream, err := file.Open()
	if err != nil {
		return nil, false, fmt.Errorf("`%s` cannot be unpacked: %w", name, err)
	}
	defer stream.Close()
	if _, err := io.CopyN(io.Discard, stream, offset); err != nil && err != io.EOF {
		return nil, false, fmt.Errorf("`%s` is damaged: %w", name, err)
	}
	var kept bytes.Buffer
	_, err = io.CopyN(&kept, stream, limit+1)
	if err != nil && err != io.EOF {
		return nil, false, fmt.Errorf("`%s` is damaged: %w", name, err)
	}
	content = kept.Bytes()
	if int64(len(content)) > limit {
		return content[:limit], true, nil
	}
	return content, false, nil
}

// Text returns content as text if it is: without what a cut left of the last character.
func Text(content []byte, more bool) (string, bool) {
	if more {
		for cut := 0; cut < utf8.UTFMax && len(content) > 0 && !utf8.Valid(content); cut++ {
			content = content[:len(content)-1]
		}
	}
	return string(content), utf8.Valid(content) && bytes.IndexByte(content, 0) < 0
}

func (a *Archive) find(name string) *zip.File {
	for index, file := range a.reader.File {
		if index == MaxEntries {
			return nil
		}
		if file.Name == name {
			return file
		}
	}
	return nil
}

func warnings(file *zip.File) []string {
	var found []string
	if unsafe(file.Name) {
		found = append(found, "the name leads out of the folder it is unpacked in")
	}
	if suspicious(file) {
		found = append(found, "claims to be many times its compressed size: probably a bomb")
	}
	if file.Flags&1 != 0 {
		found = append(found, "encrypted")
	}
	if !file.Mode().IsRegular() && !file.Mode().IsDir() {
		found = append(found, "a link or a device, not a file")
	}
	return found
}

func suspicious(file *zip.File) bool {
	const small = 1 << 20
	return file.UncompressedSize64 > small && file.UncompressedSize64/max(file.CompressedSize64, 1) > MaxRatio
}

// A name is unsafe if some program on some system would write outside the folder.
func unsafe(name string) bool {
	slashes := strings.ReplaceAll(name, "\\", "/")
	clean := path.Clean(slashes)
	return path.IsAbs(slashes) || clean == ".." || strings.HasPrefix(clean, "../") ||
		len(slashes) > 1 && slashes[1] == ':' || strings.ContainsRune(name, 0)
}
