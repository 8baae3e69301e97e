// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hasplock/hasp/driver"
)

// stated and numbered are errors of servers, whose texts say nothing.
type (
	stated   string
	numbered struct{ Number uint16 }
)

func (stated) Error() string      { return "x" }
func (s stated) SQLState() string { return string(s) }
func (numbered) Error() string    { return "x" }

// Rule: what a refusal advises is about what was refused: a table, a function, a schema, a database.
func TestAdviceIsAboutWhatIsMissing(t *testing.T) {
	postgres, mysql := newServer(nil, postgresEngine()), newServer(nil, mysqlEngine())
	for err, want := range map[error]string{
		stated("42501"): "EXECUTE of its own functions", stated("42883"): "lacks a function", stated("3F000"): "names no schema", stated("42P01"): "the tables are missing",
		numbered{1044}: "may not use the database", numbered{1142}: "SELECT, INSERT, UPDATE and DELETE", numbered{1146}: "the tables are missing",
	} {
		s := postgres
		if errors.As(err, new(numbered)) {
			s = mysql
		}
		if text := explainServer(s.eng.explain, err).Error(); !strings.Contains(text, want) {
			t.Errorf("%#v: %s; want %q", err, text, want)
		}
	}
}

// Rule: what a server says has a class by its code, and never by a word of its text.
func TestServerErrorsHaveAClass(t *testing.T) {
	postgres, mysql := newServer(nil, postgresEngine()), newServer(nil, mysqlEngine())
	for class, codes := range map[driver.Class][]error{
		driver.ClassReadOnly: {stated("25006"), numbered{1290}, numbered{1792}, numbered{1836}, errDemoted},
		driver.ClassLogin:    {stated("28P01"), stated("28000"), numbered{1045}},
		driver.ClassDenied:   {stated("42501"), numbered{1044}, numbered{1130}, numbered{1142}},
		driver.ClassFull:     {stated("53100"), numbered{1021}},
		driver.ClassMisconfigured: {
			stated("42P01"), stated("3D000"), stated("26000"), numbered{1146}, numbered{1049}, numbered{1665},
		},
		driver.ClassUnreachable: {
			stated("08006"), stated("08P01"), stated("0A000"), stated("25P03"), stated("40001"), stated("53300"), stated("55000"), stated("57014"), stated("57P01"),
			stated("57P03"), stated("58000"), numbered{1040}, numbered{1047}, numbered{1053}, numbered{1203}, numbered{1226}, numbered{1927}, numbered{9001}, numbered{9006},
			&lostError{errors.New("x")},
		},
		driver.ClassUnknown: {errors.New("the connection was closed"), stated("22003"), numbered{1366}},
	} {
		for _, err := range codes {
			s := postgres
			if errors.As(err, new(numbered)) {
				s = mysql
			}
			if got := s.Classify(explainServer(s.eng.explain, fmt.Errorf("it was: %w", err))); got != class {
				t.Errorf("%#v is of class %d, want %d", err, got, class)
			}
		}
	}
}
