package browser

import (
	"fmt"
	"strings"
)

// minContrast is the smallest contrast that text may have (WCAG 2, level AA).
const minContrast = 4.5

// look is a JavaScript function that returns up to 20 visual defects of the current page: text with less contrast than
// its argument, and elements that overflow the page to the right. The background of a text is composed of the
// backgrounds of all enclosing elements and, in an SVG, of the shapes below the text. Transparent colours are blended.
const look = `(least => {
	const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true}), known = {};
	canvas.canvas.width = canvas.canvas.height = 1;
	const parse = text => known[text] ??= (() => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = text;
		canvas.fillRect(0, 0, 1, 1);
		const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
		return [r, g, b, a / 255];
	})();
	const over = (top, below, opacity = 1) => {
		const a = top[3] * opacity;
		return [0, 1, 2].map(i => top[i] * a + below[i] * (1 - a)).concat(1);
	};
	const light = c => {
		const [r, g, b] = c.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
		return .2126 * r + .7152 * g + .0722 * b;
	};
	const contrast = (a, b) => {
		const [x, y] = [light(a), light(b)].sort((m, n) => n - m);
		return (x + .05) / (y + .05);
	};
	const behind = e => {
		let colour = parse(getComputedStyle(document.documentElement).colorScheme === 'dark' ? '#121212' : '#fff');
		const all = [];
		for (let at = e; at; at = at.parentElement) all.unshift(at);
		for (const at of all) {
			const style = getComputedStyle(at), opacity = Number(style.opacity);
			if (at.namespaceURI.endsWith('svg')) {
				for (const shape of at.children) {
					if (shape.tagName !== 'rect') continue;
					const fill = getComputedStyle(shape);
					if (fill.fill !== 'none') colour = over(parse(fill.fill), colour, Number(fill.opacity));
				}
			} else colour = over(parse(style.backgroundColor), colour, opacity);
		}
		return colour;
	};
	const shown = e => {
		if (!e.checkVisibility({opacityProperty: true, visibilityProperty: true})) return false;
		for (let at = e; at; at = at.parentElement) if (getComputedStyle(at).clipPath !== 'none') return false;
		return true;
	};
	const wrong = [];
	const judge = (e, colour, text) => {
		const back = behind(e), ratio = contrast(over(parse(colour), back), back);
		if (ratio < least) wrong.push('contrast ' + ratio.toFixed(2) + ' of "' + text.trim().slice(0, 40) + '" in ' + e.tagName + '.' + (e.getAttribute('class') || ''));
	};
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n = walker.nextNode(); n; n = walker.nextNode()) {
		const e = n.parentElement;
		if (!n.data.trim() || ['SCRIPT', 'STYLE', 'OPTION', 'title'].includes(e.tagName) || !shown(e)) continue;
		const style = getComputedStyle(e);
		judge(e, e.namespaceURI.endsWith('svg') ? style.fill : style.color, n.data);
	}
	for (const e of document.querySelectorAll('input, select, textarea')) {
		if (!shown(e) || ['hidden', 'checkbox', 'radio'].includes(e.type)) continue;
		judge(e, getComputedStyle(e).color, e.value || e.name);
		if (e.placeholder) judge(e, getComputedStyle(e, '::placeholder').color, e.placeholder);
	}
	const width = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth > width) wrong.push('the page is ' + document.documentElement.scrollWidth + ' wide in a window of ' + width);
	for (const e of document.querySelectorAll('body *')) {
		const r = e.getBoundingClientRect();
		if (r.width === 0 || r.right <= width + 1 || e.namespaceURI.endsWith('svg') || !shown(e)) continue;
		let inside = false;
		for (let at = e.parentElement; at && !inside; at = at.parentElement) inside = getComputedStyle(at).overflowX !== 'visible';
		if (!inside) wrong.push(e.tagName + '.' + e.className + ' ends at ' + Math.round(r.right) + ' in a window of ' + width);
	}
	return [...new Set(wrong)].slice(0, 20);
})`

// looksGood verifies that the current page has no visual defects in either theme at the smallest, a medium and the
// largest width. Afterwards, the tab has the light theme and a window of 1280 × 900.
func (b *tab) looksGood() {
	b.Helper()
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		for _, width := range []int64{360, 1280, 2560} {
			b.size(width, 900)
			if wrong := evaluate[[]string](b, fmt.Sprintf("%s(%v)", look, minContrast)); len(wrong) > 0 {
				b.Errorf("%s, %s, %d px:\n\t%s", evaluate[string](b, "location.pathname + location.search"), theme, width, strings.Join(wrong, "\n\t"))
			}
		}
	}
	b.theme("light")
	b.size(1280, 900)
}
