package bound

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// What the parser is given at most.
const (
	MaxFileSize = 512 << 10 // bytes of a run file or a file of variables
	MaxTokens   = 150_000
	MaxNesting  = 100   // brackets, templates and directives inside each other
	MaxChain    = 1_000 // operators, indexes and conditions in a row
)

// level is one open bracket or template.
type level struct {
	open  hclsyntax.TokenType
	chain int // operators since the last comma or line end that separates items
}

// CheckTokens refuses source on which the parser or the evaluation of its result would recurse without bound. The
// range is where it becomes too much; the reason is empty when all is well.
func CheckTokens(tokens hclsyntax.Tokens) (hcl.Range, string) {
	if len(tokens) > MaxTokens {
		return tokens[MaxTokens].Range,
			"the file has more than 150,000 words and signs; keep data in a file of its own and read it with file()"
	}
	levels := make([]level, 1, 16)
	directives, signs := 0, 0
	for i, t := range tokens {
		top := &levels[len(levels)-1]
		sign := false
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOParen, hclsyntax.TokenOBrack, hclsyntax.TokenOQuote,
			hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			if t.Type == hclsyntax.TokenOBrack || t.Type == hclsyntax.TokenOParen {
				top.chain++ // a[b][c] nests as deeply as it is long
			}
			if t.Type == hclsyntax.TokenTemplateControl {
				directives += directive(tokens, i)
			}
			levels = append(levels, level{open: t.Type})
		case hclsyntax.TokenCBrace, hclsyntax.TokenCParen, hclsyntax.TokenCBrack, hclsyntax.TokenCQuote,
			hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
			if len(levels) > 1 {
				levels = levels[:len(levels)-1]
			}
		case hclsyntax.TokenComma:
			top.chain = 0
		case hclsyntax.TokenNewline:
			if top.open == 0 || top.open == hclsyntax.TokenOBrace {
				top.chain = 0 // elsewhere a line end does not end an expression
			}
		case hclsyntax.TokenBang, hclsyntax.TokenMinus:
			sign = true
			signs++
			top.chain++
		case hclsyntax.TokenPlus, hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPercent, hclsyntax.TokenDot,
			hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual, hclsyntax.TokenLessThan, hclsyntax.TokenLessThanEq,
			hclsyntax.TokenGreaterThan, hclsyntax.TokenGreaterThanEq, hclsyntax.TokenAnd, hclsyntax.TokenOr,
			hclsyntax.TokenQuestion:
			top.chain++
		}
		if !sign {
			signs = 0
		}
		switch {
		case len(levels)-1+max(directives, 0) > MaxNesting, signs > MaxNesting:
			return t.Range, fmt.Sprintf("brackets and templates are nested more than %d deep here", MaxNesting)
		case top.chain > MaxChain:
			return t.Range, fmt.Sprintf("one expression has more than %d operators in a row", MaxChain)
		}
	}
	return hcl.Range{}, ""
}

// directive returns by how much the directive that begins at tokens[i] changes the nesting of directives.
func directive(tokens hclsyntax.Tokens, i int) int {
	if i+1 < len(tokens) && tokens[i+1].Type == hclsyntax.TokenIdent {
		switch string(tokens[i+1].Bytes) {
		case "if", "for":
			return 1
		case "endif", "endfor":
			return -1
		}
	}
	return 0
}

// TooDeep is the offset at which JSON text nests more deeply than a recursive decoder should follow, or -1.
func TooDeep(src []byte) int {
	depth, inString := 0, false
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			if depth++; depth > MaxNesting {
				return i
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return -1
}
