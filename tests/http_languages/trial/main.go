// Requests as authors write them, with what they forget.
package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"toolhold"
	_ "toolhold/web"
)

func init() {
	toolhold.Export(toolhold.Tool{Name: "run", Description: "d", Run: toolhold.Func(run)})
}

type arguments struct {
	How string `json:"how"`
	URL string `json:"url"`
}

const many = 12

func run(a arguments) (any, error) {
	client := http.Client{Timeout: 300 * time.Millisecond}
	switch a.How {
	case "unread":
		var found []int
		for range many {
			response, err := http.Get(a.URL + "/long")
			if err != nil {
				return nil, err
			}
			found = append(found, response.StatusCode)
		}
		return found, nil
	case "errors":
		failures := 0
		for index := range many {
			request, err := http.NewRequest("POST", a.URL+"/cut", strings.NewReader("body"))
			if err != nil {
				return nil, err
			}
			switch index % 3 {
			case 1:
				request.URL.Scheme = "ftp"
			case 2:
				request.Header["x y"] = []string{"no header"}
			}
			if _, err := http.DefaultClient.Do(request); err != nil {
				failures++
			}
		}
		response, err := http.Get(a.URL + "/text")
		if err != nil {
			return nil, err
		}
		return []int{failures, response.StatusCode}, nil
	case "together":
		var group sync.WaitGroup
		found := make([]int, many)
		for index := range many {
			group.Go(func() {
				if response, err := http.Get(a.URL + "/text"); err == nil {
					found[index] = response.StatusCode
				}
			})
		}
		group.Wait()
		return found, nil
	case "timeout":
		_, err := client.Get(a.URL + "/slow")
		return []bool{os.IsTimeout(err), errors.Is(err, context.DeadlineExceeded)}, nil
	case "timeout in the body":
		_, err := client.Get(a.URL + "/trickle")
		return []bool{os.IsTimeout(err), errors.Is(err, context.DeadlineExceeded)}, nil
	case "deadline":
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		return nil, send(ctx, "GET", a.URL+"/slow", nil)
	case "deadline of a post":
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		return nil, send(ctx, "POST", a.URL+"/slow", nil)
	case "timeout of a large body":
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		return nil, send(ctx, "POST", a.URL+"/slow", strings.NewReader(strings.Repeat("x", 12<<20)))
	case "cancel":
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(300*time.Millisecond, cancel)
		return errors.Is(send(ctx, "GET", a.URL+"/slow", nil), context.Canceled), nil
	case "cancel in the body":
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			time.Sleep(300 * time.Millisecond)
			cancel()
		}()
		return errors.Is(send(ctx, "GET", a.URL+"/trickle", nil), context.Canceled), nil
	}
	return nil, toolhold.Correctable("no such way: %s", a.How)
}

func send(ctx context.Context, method, url string, body io.Reader) error {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_, err = io.ReadAll(response.Body)
	return err
}

func main() {}
