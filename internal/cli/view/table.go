package view

import (
	"strings"
	"unicode/utf8"
)

// Cell is one field of a table.
type Cell struct {
	Text   string
	Colour Colour
}

// Plainly returns cells without colour.
func Plainly(texts ...string) []Cell {
	cells := make([]Cell, len(texts))
	for i, t := range texts {
		cells[i].Text = t
	}
	return cells
}

// Table is a header and rows, rendered in columns three spaces apart. A row may be shorter than the header.
type Table struct {
	Header []string
	Rows   [][]Cell
	// Text is true if the last column contains sentences. If there is little room, they are placed below their rows.
	Text bool
}

const (
	columnGap = 3
	// minText is the smallest width of a column of sentences. hanging is the indent of sentences below their row.
	minText = 30
	hanging = "    "
)

// Lines renders the table. Each line is indented and at most width characters long; 0 means unlimited. If the table is
// too wide, Lines first drops its empty columns and then wraps its cells. It cuts nothing off.
func (t Table) Lines(st Style, indent string, width int) []string {
	var lines []string
	for _, block := range t.blocks(st, indent, width) {
		lines = append(lines, block...)
	}
	return lines
}

// escaped returns the table with the control characters in its cells escaped.
func (t Table) escaped() Table {
	rows := make([][]Cell, len(t.Rows))
	for i, row := range t.Rows {
		rows[i] = make([]Cell, len(row))
		for k, c := range row {
			rows[i][k] = Cell{Escape(c.Text), c.Colour}
		}
	}
	t.Rows = rows
	return t
}

// blocks renders the header, if there is one, and the rows. Each block has the lines of the header or of one row.
func (t Table) blocks(st Style, indent string, width int) [][]string {
	t = t.escaped()
	l := layout{Table: t, gap: columnGap, widths: columnWidths(t)}
	if width > 0 {
		l.fit(width - utf8.RuneCountInString(indent))
	}
	var blocks [][]string
	if len(l.Header) > 0 {
		head := Plainly(l.Header...)
		for i := range head {
			head[i].Colour = Bold
		}
		if l.below > 0 {
			head = head[:len(head)-1]
		}
		blocks = append(blocks, l.draw(st, indent, head))
	}
	for _, row := range l.Rows {
		blocks = append(blocks, l.draw(st, indent, row))
	}
	return blocks
}

// layout is a table with the widths of its columns.
type layout struct {
	Table
	gap    int
	widths []int
	// below is the width of the last column if it is placed below its rows, and 0 otherwise.
	below int
}

func columnWidths(t Table) []int {
	var widths []int
	add := func(i int, text string) {
		if i == len(widths) {
			widths = append(widths, 0)
		}
		widths[i] = max(widths[i], utf8.RuneCountInString(text))
	}
	for i, text := range t.Header {
		add(i, text)
	}
	for _, row := range t.Rows {
		for i, c := range row {
			add(i, c.Text)
		}
	}
	return widths
}

// total returns the width of the widest line.
func (l *layout) total() int {
	n := 0
	for i, w := range l.widths {
		if i > 0 && w > 0 {
			n += l.gap
		}
		n += w
	}
	return n
}

// fit changes the columns until they need at most room characters, or until each is one character wide.
func (l *layout) fit(room int) {
	if l.total() <= room {
		return
	}
	l.dropEmpty()
	if l.total() > room {
		l.gap = 2
	}
	last := len(l.widths) - 1
	if l.Text && last > 0 && l.total() > room {
		text := l.widths[last]
		l.widths[last] = 0
		left := room - l.total() - l.gap
		if left >= min(text, minText) {
			l.widths[last] = left
			return
		}
		l.below = max(1, room-len(hanging))
		last--
	}
	if l.total() > room {
		l.gap = 1
	}
	for l.total() > room {
		widest := 0
		for i := range last + 1 {
			if l.widths[i] > l.widths[widest] {
				widest = i
			}
		}
		if l.widths[widest] <= 1 {
			return
		}
		l.widths[widest]--
	}
}

// dropEmpty removes the columns that are empty in all rows, except the first column, which identifies the row. A cell
// with a dash or the text of the constant nothing counts as empty.
func (l *layout) dropEmpty() {
	var says []bool
	for _, row := range l.Rows {
		for i, c := range row {
			for i >= len(says) {
				says = append(says, len(says) == 0)
			}
			says[i] = says[i] || c.Text != "" && c.Text != "-" && c.Text != nothing
		}
	}
	if len(l.Rows) == 0 {
		return
	}
	l.Text = l.Text && says[len(says)-1] && len(says) == len(l.widths)
	l.Header = kept(l.Header, says)
	rows := make([][]Cell, len(l.Rows))
	for i, row := range l.Rows {
		rows[i] = kept(row, says)
	}
	l.Rows = rows
	l.widths = columnWidths(l.Table)
}

func kept[T any](all []T, keep []bool) []T {
	var some []T
	for i := range all {
		if i < len(keep) && keep[i] {
			some = append(some, all[i])
		}
	}
	return some
}

// draw renders a row in as many lines as its cells need.
func (l *layout) draw(st Style, indent string, row []Cell) []string {
	columns := make([][]string, len(row))
	height := 0
	var text []string
	for i, c := range row {
		if l.below > 0 && i == len(l.widths)-1 {
			text = wrap(c.Text, l.below)
			continue
		}
		columns[i] = wrap(c.Text, l.widths[i])
		height = max(height, len(columns[i]))
	}
	lines := make([]string, 0, height+len(text))
	for k := range height {
		var b strings.Builder
		b.WriteString(indent)
		for i, column := range columns {
			part := ""
			if k < len(column) {
				part = column[k]
			}
			b.WriteString(st.Paint(row[i].Colour, part))
			if i < len(columns)-1 {
				b.WriteString(strings.Repeat(" ", l.widths[i]-utf8.RuneCountInString(part)+l.gap))
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	for _, part := range text {
		if part != "" {
			lines = append(lines, indent+hanging+st.Paint(row[len(row)-1].Colour, part))
		}
	}
	return lines
}

// Wrap escapes a text and breaks it into indented lines of at most width characters; 0 means unlimited. It returns no
// lines for an empty text.
func Wrap(s, indent string, width int) []string {
	if s == "" {
		return nil
	}
	lines := wrap(Escape(s), max(0, width-utf8.RuneCountInString(indent)))
	for i := range lines {
		lines[i] = indent + lines[i]
	}
	return lines
}

// wrap breaks a text into lines of at most width characters, between words if possible; 0 means unlimited.
func wrap(s string, width int) []string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return []string{s}
	}
	var lines []string
	line := ""
	used := 0
	for word := range strings.FieldsSeq(s) {
		n := utf8.RuneCountInString(word)
		if used > 0 && used+1+n <= width {
			line, used = line+" "+word, used+1+n
			continue
		}
		if used > 0 {
			lines = append(lines, line)
		}
		rest := []rune(word)
		for len(rest) > width {
			at := breakBefore(rest, width)
			lines, rest = append(lines, string(rest[:at])), rest[at:]
		}
		line, used = string(rest), len(rest)
	}
	return append(lines, line)
}

// breakBefore returns where to break a word that is longer than width: after punctuation in the second half of the
// line, or at width.
func breakBefore(word []rune, width int) int {
	for at := width; at > width/2; at-- {
		if strings.ContainsRune("-/,.:;=_", word[at-1]) {
			return at
		}
	}
	return width
}
