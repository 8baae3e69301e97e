// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// longest leaves room for sums with a duration.
const longest = 100 * 365 * 24 * time.Hour

var errOutOfRange = errors.New("out of range: more than 100 years")

// Duration is a flag's value: seconds as flock takes them, fractions too, or a
// duration of Go such as 1m30s. Never negative.
type Duration struct {
	D     time.Duration
	Given bool
}

// Set implements [github.com/spf13/pflag.Value].
func (v *Duration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if sec, numErr := strconv.ParseFloat(s, 64); numErr == nil {
		if math.IsNaN(sec) || math.Abs(sec) > longest.Seconds() {
			return errOutOfRange
		}
		d, err = time.Duration(sec*1e9), nil
	}
	switch {
	case err != nil:
		return errors.New("neither seconds, such as 30 or 0.5, nor a duration, such as 1m30s")
	case d > longest:
		return errOutOfRange
	}
	if d < 0 || math.Signbit(float64(d)) {
		return errors.New("negative")
	}
	v.D, v.Given = d, true
	return nil
}

func (v *Duration) String() string {
	if !v.Given {
		return ""
	}
	return v.D.String()
}

// Type implements [github.com/spf13/pflag.Value].
func (v *Duration) Type() string { return "DURATION" }

// number is a flag's value from least to most.
type number struct {
	to          *int
	least, most int
}

// Number returns the value of a flag: a number from least to most, which goes to to.
func Number(to *int, least, most int) pflag.Value { return &number{to, least, most} }

func (v *number) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < v.least || n > v.most {
		return fmt.Errorf("it is %d to %d", v.least, v.most)
	}
	*v.to = n
	return nil
}

func (v *number) String() string { return strconv.Itoa(*v.to) }
func (v *number) Type() string   { return "N" }

// Choice is a flag's value out of a few words.
type Choice struct {
	Word  string
	among []string
}

// Set implements [github.com/spf13/pflag.Value].
func (v *Choice) Set(s string) error {
	if !slices.Contains(v.among, s) {
		return fmt.Errorf("it is one of %s", strings.Join(v.among, ", "))
	}
	v.Word = s
	return nil
}

func (v *Choice) String() string { return v.Word }

// Type implements [github.com/spf13/pflag.Value].
func (v *Choice) Type() string { return strings.Join(v.among, "|") }

// OneOf is a flag's value out of some words, one of which it is without the flag; "": none.
func OneOf(word string, among ...string) Choice { return Choice{word, among} }

// Outputs is the value of -o.
func Outputs() Choice { return OneOf("text", "text", "json") }

// Add adds the flag, whose values the shell completes.
func (v *Choice) Add(cmd *cobra.Command, name, short, usage string) {
	cmd.Flags().VarP(v, name, short, usage)
	if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(v.among, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag
	}
}

// AddOutput adds -o.
func (v *Choice) AddOutput(cmd *cobra.Command, usage string) { v.Add(cmd, "output", "o", usage) }

// JSON says whether -o json was given.
func (v *Choice) JSON() bool { return v.Word == "json" }
