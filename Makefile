# `make` alone says what there is. The work is in scripts/.

SHELL := /bin/bash
PREFIX ?= /usr/local
DESTDIR ?=

# Where cargo puts the program: .cargo/config.toml builds for the host's triple by name. (Without Rust, as under
# sudo, it can be guessed.)
HOST := $(or $(CARGO_BUILD_TARGET),$(shell PATH="$$PATH:$$HOME/.cargo/bin" rustc -vV 2>/dev/null | sed -n 's/^host: //p'),$(shell uname -m)-unknown-linux-gnu)
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
CREEL := $(TARGET_DIR)/$(HOST)/release/creel
SOURCES := Cargo.toml Cargo.lock $(wildcard .cargo/config.toml) $(shell find src profiles -type f 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help run build test test-full soak check bench install clean image-minimal image-data image-office image-test

help: ## this list
	@sed -n 's|^\([a-z -]*\):.*## |\1\t|p' Makefile | while IFS=$$'\t' read -r n t; do printf 'make %-12s %s\n' "$$n" "$$t"; done

run: ## install what is missing, build, and run examples/report.py on examples/sales.csv in a sandbox
	@scripts/run-example.sh

build: $(CREEL) ## the release build; prints where the program is
	@echo "$(CREEL)"

$(CREEL): $(SOURCES)
	@scripts/build.sh
	@touch -c "$@"

test: ## install what is missing (guests' kernels too), build, run all tests, look for leftovers
	@scripts/test.sh

test-full: ## make test, and what takes longer: ignored tests, the release build's tests, the guests' self-check
	@scripts/test.sh full

soak: ## ten minutes of good and hostile programs, cancels and kills (CREEL_SOAK_MINUTES, CREEL_SOAK_SEED); make test has 300 runs of it
	@scripts/soak.sh

check: ## format, clippy without a warning, shellcheck
	@scripts/check.sh

bench: $(CREEL) ## compare cold starts with bare Python and other sandboxes
	@benches/run.sh

image-minimal image-data image-office: image-%: $(CREEL) ## install what is missing, and build and install the image
	@scripts/image.sh "$*"

image-test: $(CREEL) ## build all three images, and prove with real files that they do their work
	@scripts/image.sh minimal data office
	@scripts/image-test.sh minimal data office

install: $(CREEL) ## put the program in PREFIX/bin, the recipes in PREFIX/share/creel (PREFIX=/usr/local); build first as yourself, then sudo make install
	install -D -m 755 "$(CREEL)" "$(DESTDIR)$(PREFIX)/bin/creel"
	mkdir -p "$(DESTDIR)$(PREFIX)/share/creel"
	cp -RT rootfs "$(DESTDIR)$(PREFIX)/share/creel/rootfs"

clean: ## remove what was built, and outputs/example
	rm -rf -- "$(TARGET_DIR)" outputs/example
