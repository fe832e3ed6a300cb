package httpapi

import (
	"encoding/base64"

	"bashd/internal/exec"
)

// pageBody is a piece of a task's output.
type pageBody struct {
	Delta           string    `json:"delta"`
	Stdout          pieceBody `json:"stdout"`
	Stderr          pieceBody `json:"stderr"`
	Lossy           bool      `json:"lossy"`
	NextCursor      string    `json:"nextCursor"`
	More            bool      `json:"more"`
	EOF             bool      `json:"eof"`
	StdoutSpillPath string    `json:"stdoutSpillPath,omitempty"`
	StderrSpillPath string    `json:"stderrSpillPath,omitempty"`
	Task            taskBody  `json:"task"`
}

// pieceBody holds the bytes [from, to) of a stream, or what they are as text.
type pieceBody struct {
	From       int64   `json:"from"`
	To         int64   `json:"to"`
	Text       *string `json:"text,omitempty"`
	DataBase64 *string `json:"dataBase64,omitempty"`
}

func encodePage(p exec.Page) pageBody {
	return pageBody{
		Delta:           p.Delta(),
		Stdout:          encodePiece(p.Stdout, p.Task.Spec.Encoding),
		Stderr:          encodePiece(p.Stderr, p.Task.Spec.Encoding),
		Lossy:           p.Lossy,
		NextCursor:      p.Next,
		More:            p.More,
		EOF:             p.EOF,
		StdoutSpillPath: p.Task.Stdout.SpillPath,
		StderrSpillPath: p.Task.Stderr.SpillPath,
		Task:            encodeListedTask(p.Task),
	}
}

func encodePiece(p exec.Piece, e exec.Encoding) pieceBody {
	b := pieceBody{From: p.From, To: p.To}
	if e == exec.EncodingBase64 {
		b.DataBase64 = new(base64.StdEncoding.EncodeToString(p.Data))
	} else {
		b.Text = new(p.Text)
	}
	return b
}
