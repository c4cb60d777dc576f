package judge

import (
	"strings"
	"sync"
)

// Tool is what one tool of a developer's machine reads in a project without being pointed to it.
type Tool struct {
	Name   string
	Source string // where the tool documents it
	// Runs are files from which the tool runs programs, or takes orders that come to the same, when a user only enters or
	// opens the directory, or gives an everyday command that is not about the file. They are refused.
	Runs string
	// Marks are files that people change every day, and that the tool runs or follows when it is used as intended. They
	// land, and a review marks them.
	Marks string
}

// Table is the list of such files; it cannot be complete. A pattern is a path from any directory on, with a slash at
// the end a directory and all in it; one asterisk may stand for any part of the last name.
//
// What a user asks a tool to run by name, such as a test, is the code under review, and is in no list.
var Table = []Tool{
	// Version control.
	{"git", "https://git-scm.com/docs/gitattributes", ".gitmodules .gitattributes .gitconfig .lfsconfig .githooks/ .git-hooks/", ""},
	{"Mercurial", "https://www.mercurial-scm.org/doc/hgrc.5.html", ".hg/ .hgsub .hgsubstate", ""},
	{"Subversion", "https://subversion.apache.org/docs/", ".svn/", ""},
	{"Jujutsu", "https://docs.jj-vcs.dev/latest/config/", ".jj/", ""},
	{"Sapling", "https://sapling-scm.com/docs/introduction/", ".sl/", ""},
	{"Bazaar", "https://documentation.breezy-vcs.org/en/latest/", ".bzr/", ""},
	{"Darcs", "https://darcs.net/manual/", "_darcs/", ""},
	{"Fossil", "https://fossil-scm.org/home/doc/trunk/www/settings.wiki", ".fossil-settings/ .fslckout _FOSSIL_", ""},
	{"repo", "https://gerrit.googlesource.com/git-repo", ".repo/", ""},
	{"Arcanist", "https://secure.phabricator.com/book/phabricator/article/arcanist_new_project/", ".arcconfig .arclint", ""},
	{"pre-commit", "https://pre-commit.com/#adding-pre-commit-plugins-to-your-project", ".pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml", ""},
	{"Husky", "https://typicode.github.io/husky/", ".husky/ .huskyrc*", ""},
	{"Lefthook", "https://lefthook.dev/configuration/", "lefthook.* .lefthook.* lefthook-local.* .lefthook-local.* .config/lefthook.yml", ""},
	{"Overcommit", "https://github.com/sds/overcommit#configuration", ".overcommit.yml", ""},
	{"lint-staged", "https://github.com/lint-staged/lint-staged#configuration", ".lintstagedrc* lint-staged.config.*", ""},
	{"simple-git-hooks", "https://github.com/toplenboren/simple-git-hooks", ".simple-git-hooks.*", ""},
	{"CaptainHook", "https://php.captainhook.info/configure.html", "captainhook.json", ""},
	{"GrumPHP", "https://github.com/phpro/grumphp", "grumphp.yml grumphp.yml.dist", ""},
	{"commitlint", "https://commitlint.js.org/reference/configuration.html", "", "commitlint.config.* .commitlintrc*"},

	// Shells and versions of languages.
	{"direnv", "https://direnv.net/man/direnv-toml.1.html", ".envrc .direnv/", ""},
	{"a shell", "https://www.gnu.org/software/bash/manual/html_node/Bash-Startup-Files.html", ".bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .inputrc", ""},
	{"autoenv", "https://github.com/hyperupcall/autoenv", ".env.leave .autoenv .autoenv.zsh", ".env"},
	{"mise", "https://mise.jdx.dev/configuration.html", "mise.toml .mise.toml mise.local.toml .mise.local.toml mise.*.toml .mise.*.toml .mise/ mise/config.toml .config/mise/ .config/mise.toml .rtx.toml", ""},
	{"asdf", "https://asdf-vm.com/manage/configuration.html", ".tool-versions .asdfrc", ""},
	{"SDKMAN", "https://sdkman.io/usage/#env-command", "", ".sdkmanrc"},
	{"devenv", "https://devenv.sh/files-and-variables/", "", "devenv.nix devenv.yaml devbox.json flake.nix shell.nix default.nix"},
	{"OpenSSH", "https://man.openbsd.org/ssh_config", ".ssh/", ""},
	{"GnuPG", "https://www.gnupg.org/documentation/manuals/gnupg/GPG-Configuration.html", ".gnupg/", ""},
	{"tmuxinator", "https://github.com/tmuxinator/tmuxinator", ".tmuxinator.yml .tmuxinator.yaml", ""},

	// Editors, and services that open a project in one.
	{"VS Code", "https://code.visualstudio.com/docs/editing/workspaces/workspace-trust", ".vscode/ *.code-workspace", ""},
	{"a dev container", "https://containers.dev/implementors/json_reference/", ".devcontainer/ .devcontainer.json", ""},
	{"JetBrains IDEs", "https://www.jetbrains.com/help/idea/project-security.html", ".idea/ *.iml *.ipr *.iws .run/", ""},
	{"Fleet", "https://www.jetbrains.com/help/fleet/", ".fleet/", ""},
	{"Zed", "https://zed.dev/docs/configuring-zed", ".zed/", ""},
	{"Sublime Text", "https://www.sublimetext.com/docs/projects.html", "*.sublime-project *.sublime-workspace", ""},
	{"Visual Studio", "https://learn.microsoft.com/visualstudio/ide/trust-settings", ".vs/", ""},
	{"Eclipse", "https://help.eclipse.org/latest/", ".settings/ .project .classpath .factorypath", ""},
	{"Nova", "https://help.nova.app/", ".nova/", ""},
	{"Vim", "https://vimhelp.org/options.txt.html#%27exrc%27", ".vimrc _vimrc .exrc _exrc .gvimrc .lvimrc .local.vimrc .vim/ .ycm_extra_conf.py", ""},
	{"Neovim", "https://neovim.io/doc/user/options.html#'exrc'", ".nvim.lua .nvimrc .nvim/ .neoconf.json .nlsp-settings/ .lazy.lua", ""},
	{"Emacs", "https://www.gnu.org/software/emacs/manual/html_node/emacs/Directory-Variables.html", ".dir-locals.el .dir-locals-2.el .emacs .emacs.d/ .projectile", ""},
	{"Helix", "https://docs.helix-editor.com/configuration.html", ".helix/", ""},
	{"Kakoune", "https://github.com/mawww/kakoune", ".kakrc .kak/", ""},
	{"Gitpod", "https://www.gitpod.io/docs/classic/user/references/gitpod-yml", ".gitpod.yml .gitpod/", ""},
	{"Replit", "https://docs.replit.com/replit-app/configuration", ".replit replit.nix", ""},
	{"Firebase Studio", "https://firebase.google.com/docs/studio/devnix-reference", ".idx/", ""},
	{"CodeSandbox", "https://codesandbox.io/docs/learn/sandboxes/configuration", ".codesandbox/ .stackblitzrc", ""},

	// Coding agents.
	{"hutch", "https://github.com/hutch-run/hutch", ".hutch/", ""},
	{"an agent's MCP client", "https://modelcontextprotocol.io/docs/getting-started/intro", ".mcp.json mcp.json .mcp/", ""},
	{"Claude Code", "https://code.claude.com/docs/en/settings", ".claude/ .claude.json .claude-plugin/", "CLAUDE.md CLAUDE.local.md"},
	{"Codex", "https://developers.openai.com/codex/config-reference", ".codex/", ""},
	{"a coding agent", "https://agents.md", ".agents/ .agent/", "AGENTS.md AGENTS.override.md AGENT.md SKILL.md"},
	{"Gemini CLI", "https://geminicli.com/docs/reference/configuration/", ".gemini/", "GEMINI.md"},
	{"Qwen Code", "https://qwenlm.github.io/qwen-code-docs/", ".qwen/", "QWEN.md"},
	{"OpenCode", "https://opencode.ai/docs/config/", ".opencode/ opencode.json opencode.jsonc", ""},
	{"Crush", "https://github.com/charmbracelet/crush#configuration", ".crush/ crush.json .crush.json", "CRUSH.md"},
	{"Cursor", "https://cursor.com/docs/context/rules", ".cursor/", ".cursorrules"},
	{"Windsurf", "https://docs.windsurf.com/windsurf/cascade/memories", ".windsurf/", ".windsurfrules"},
	{"GitHub Copilot", "https://docs.github.com/copilot/customizing-copilot", ".copilot/ .github/hooks/", ".github/copilot-instructions.md .github/instructions/ .github/prompts/ .github/agents/ .github/chatmodes/ .github/skills/"},
	{"Cline", "https://docs.cline.bot/customization/cline-rules", ".cline/", ".clinerules .clinerules/"},
	{"Roo Code", "https://docs.roocode.com/features/custom-modes", ".roo/ .roomodes", ".roorules"},
	{"Kilo Code", "https://kilo.ai/docs", ".kilocode/ .kilocodemodes", ""},
	{"Continue", "https://docs.continue.dev/reference", ".continue/ .continuerc.json", ""},
	{"aider", "https://aider.chat/docs/config/aider_conf.html", ".aider.conf.yml .aider.model.settings.yml .aiderignore", "CONVENTIONS.md"},
	{"goose", "https://block.github.io/goose/docs/guides/using-goosehints", ".goose/", ".goosehints"},
	{"Amp", "https://ampcode.com/manual", ".amp/", ""},
	{"Kiro", "https://kiro.dev/docs/hooks/", ".kiro/", ""},
	{"Amazon Q", "https://docs.aws.amazon.com/amazonq/latest/qdeveloper-ug/command-line-custom-agents.html", ".amazonq/", ""},
	{"Junie", "https://www.jetbrains.com/help/junie/customize-guidelines.html", ".junie/", ""},
	{"Factory", "https://docs.factory.ai/cli/configuration/settings", ".factory/", ""},
	{"Augment", "https://docs.augmentcode.com/", ".augment/ .augment-guidelines", ""},
	{"Trae", "https://docs.trae.ai/", ".trae/", ""},
	{"Zed's agent", "https://zed.dev/docs/ai/rules", "", ".rules"},

	// Continuous integration: it runs with the repository's secrets once the change is pushed.
	{"GitHub Actions", "https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax", "", ".github/workflows/ .github/actions/ .github/dependabot.yml action.yml action.yaml"},
	{"GitHub", "https://docs.github.com/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners", "", "CODEOWNERS"},
	{"GitLab CI", "https://docs.gitlab.com/ci/yaml/", "", ".gitlab-ci.yml .gitlab/ci/"},
	{"Forgejo Actions", "https://forgejo.org/docs/latest/user/actions/overview/", "", ".forgejo/workflows/ .gitea/workflows/"},
	{"CircleCI", "https://circleci.com/docs/reference/configuration-reference/", "", ".circleci/"},
	{"Travis CI", "https://docs.travis-ci.com/", "", ".travis.yml"},
	{"Azure Pipelines", "https://learn.microsoft.com/azure/devops/pipelines/yaml-schema/", "", "azure-pipelines*.yml .azure-pipelines/ .pipelines/"},
	{"Jenkins", "https://www.jenkins.io/doc/book/pipeline/jenkinsfile/", "", "Jenkinsfile*"},
	{"TeamCity", "https://www.jetbrains.com/help/teamcity/kotlin-dsl.html", "", ".teamcity/"},
	{"Buildkite", "https://buildkite.com/docs/pipelines/configure", "", ".buildkite/"},
	{"Bitbucket Pipelines", "https://support.atlassian.com/bitbucket-cloud/docs/bitbucket-pipelines-configuration-reference/", "", "bitbucket-pipelines.yml"},
	{"Drone", "https://docs.drone.io/pipeline/overview/", "", ".drone.yml .drone.star .drone.jsonnet"},
	{"Woodpecker", "https://woodpecker-ci.org/docs/usage/workflow-syntax", "", ".woodpecker.yml .woodpecker.yaml .woodpecker/"},
	{"another CI service", "https://cirrus-ci.org/guide/writing-tasks/", "", ".cirrus.yml .cirrus.star .semaphore/ appveyor.yml .appveyor.yml .builds/ .build.yml .tekton/ cloudbuild.yaml buildspec.yml wercker.yml .mergify.yml"},
	{"a hosting service", "https://docs.netlify.com/build/configure-builds/file-based-configuration/", "", "netlify.toml vercel.json fly.toml render.yaml railway.toml Procfile"},
	{"Renovate", "https://docs.renovatebot.com/configuration-options/", "", "renovate.json renovate.json5 .renovaterc*"},

	// JavaScript.
	{"npm", "https://docs.npmjs.com/cli/configuring-npm/npmrc", ".npmrc node_modules/.bin/", "package.json"},
	{"pnpm", "https://pnpm.io/pnpmfile", ".pnpmfile.*", "pnpm-workspace.yaml"},
	{"Yarn", "https://yarnpkg.com/configuration/yarnrc", ".yarnrc .yarnrc.yml .yarn/ .pnp.cjs .pnp.js .pnp.loader.mjs", ""},
	{"Bun", "https://bun.com/docs/runtime/bunfig", "bunfig.toml .bunfig.toml", ""},
	{"Deno", "https://docs.deno.com/runtime/fundamentals/configuration/", "", "deno.json deno.jsonc"},
	{"ESLint", "https://eslint.org/docs/latest/use/configure/configuration-files", ".eslintrc .eslintrc.* eslint.config.*", ""},
	{"Prettier", "https://prettier.io/docs/configuration", ".prettierrc .prettierrc.* prettier.config.*", ""},
	{"Stylelint", "https://stylelint.io/user-guide/configure/", ".stylelintrc .stylelintrc.* stylelint.config.*", ""},
	{"markdownlint", "https://github.com/DavidAnson/markdownlint-cli2#configuration", ".markdownlint-cli2.* .markdownlint.cjs .markdownlint.mjs", ""},
	{"cspell", "https://cspell.org/docs/Configuration", "cspell.config.js cspell.config.cjs cspell.config.mjs .cspell.config.*", ""},
	{"remark", "https://github.com/unifiedjs/unified-engine/blob/main/readme.md", ".remarkrc .remarkrc.*", ""},
	{"dprint", "https://dprint.dev/config/", "dprint.json dprint.jsonc .dprint.json .dprint.jsonc", ""},
	{"TypeScript", "https://www.typescriptlang.org/tsconfig/#plugins", "", "tsconfig*.json jsconfig*.json"},
	{"Babel", "https://babeljs.io/docs/config-files", "", ".babelrc .babelrc.* babel.config.* .swcrc"},
	{"a test runner", "https://jestjs.io/docs/configuration", "", "jest.config.* vitest.config.* vitest.workspace.* playwright.config.* cypress.config.* karma.conf.* .mocharc.* ava.config.* web-test-runner.config.*"},
	{"a bundler", "https://vite.dev/config/", "", "vite.config.* webpack.config.* rollup.config.* esbuild.config.* rspack.config.* tsup.config.* metro.config.* next.config.* nuxt.config.* astro.config.* svelte.config.* remix.config.* tailwind.config.* postcss.config.* .postcssrc*"},
	{"a task runner", "https://nx.dev/docs/reference/nx-json", "", "nx.json turbo.json lerna.json gulpfile.* Gruntfile.* .releaserc* release.config.* nodemon.json"},

	// Python.
	{"Python", "https://docs.python.org/3/library/site.html", "sitecustomize.py usercustomize.py site-packages/*.pth dist-packages/*.pth pyvenv.cfg .venv/ python*._pth", "__pycache__/"},
	{"pdb", "https://docs.python.org/3/library/pdb.html", ".pdbrc .pdbrc.py", ""},
	{"IPython", "https://ipython.readthedocs.io/en/stable/development/config.html", "ipython_config.py jupyter_*config.py jupyter_*config.json", ""},
	{"Pylint", "https://pylint.readthedocs.io/en/stable/user_guide/configuration/all-options.html#init-hook", ".pylintrc pylintrc .pylintrc.toml pylintrc.toml", ""},
	{"Flake8", "https://flake8.pycqa.org/en/latest/user/configuration.html#using-local-plugins", ".flake8", ""},
	{"mypy", "https://mypy.readthedocs.io/en/stable/extending_mypy.html", "mypy.ini .mypy.ini", ""},
	{"PDM", "https://pdm-project.org/latest/reference/configuration/", ".pdm-python .pdm-plugins/", "pdm.toml"},
	{"pixi", "https://pixi.sh/latest/reference/pixi_manifest/", ".pixi/", "pixi.toml"},
	{"a Python build tool", "https://packaging.python.org/en/latest/guides/writing-pyproject-toml/", "", "pyproject.toml setup.py setup.cfg tox.ini noxfile.py Pipfile poetry.toml uv.toml hatch.toml dodo.py"},
	{"pytest", "https://docs.pytest.org/en/stable/reference/customize.html", "", "conftest.py pytest.ini .pytest.ini"},

	// Ruby, PHP, Perl.
	{"irb", "https://docs.ruby-lang.org/en/master/IRB.html", ".irbrc _irbrc irb.rc", ""},
	{"Pry", "https://github.com/pry/pry/wiki/Pry-rc", ".pryrc", ""},
	{"Bundler", "https://bundler.io/man/bundle-config.1.html", ".bundle/", "Gemfile gems.rb *.gemspec"},
	{"RuboCop", "https://docs.rubocop.org/rubocop/extensions.html", ".rubocop.yml .standard.yml", ""},
	{"Solargraph", "https://solargraph.org/guides/configuration", ".solargraph.yml .yardopts", ""},
	{"a Ruby debugger", "https://github.com/ruby/debug#readme", ".rdbgrc .rdbgrc.rb .byebugrc", ""},
	{"a Ruby tool", "https://ruby.github.io/rake/", "", "Rakefile Guardfile Capfile Fastfile Podfile Vagrantfile .rspec .simplecov"},
	{"PHP", "https://www.php.net/manual/en/configuration.file.per-user.php", ".user.ini php.ini", ""},
	{"Apache", "https://httpd.apache.org/docs/current/howto/htaccess.html", ".htaccess", ""},
	{"PHP CS Fixer", "https://cs.symfony.com/doc/config.html", ".php-cs-fixer.* .php_cs*", ""},
	{"a PHP analyser", "https://phpstan.org/config-reference", "phpstan.neon phpstan.neon.dist phpstan.dist.neon psalm.xml psalm.xml.dist .phan/", ""},
	{"Composer", "https://getcomposer.org/doc/articles/scripts.md", "", "composer.json phpunit.xml phpunit.xml.dist"},
	{"Perl's debugger", "https://perldoc.perl.org/perldebug#Debugger-Customization", ".perldb perldb.ini", ""},
	{"prove", "https://perldoc.perl.org/prove", "", ".proverc Makefile.PL Build.PL"},

	// The Java virtual machine.
	{"Maven", "https://maven.apache.org/configure.html", ".mvn/ .mavenrc", "pom.xml"},
	{"Gradle", "https://docs.gradle.org/current/userguide/build_environment.html", ".gradle/ gradle/wrapper/ gradle.properties init.gradle init.gradle.kts", "build.gradle build.gradle.kts settings.gradle settings.gradle.kts"},
	{"sbt", "https://www.scala-sbt.org/1.x/docs/Command-Line-Reference.html", ".sbtopts .jvmopts .sbtrc", "*.sbt"},
	{"Mill", "https://mill-build.org/mill/cli/build-header.html", ".mill-opts .mill-jvm-opts", "build.mill build.sc"},
	{"Metals", "https://build-server-protocol.github.io/docs/overview/server-discovery", ".bsp/ .bloop/ .metals/", ""},
	{"Leiningen", "https://codeberg.org/leiningen/leiningen/src/branch/main/doc/PROFILES.md", "profiles.clj .lein/", "project.clj deps.edn bb.edn"},
	{"clojure-lsp", "https://clojure-lsp.io/settings/", ".lsp/ .clj-kondo/", ""},
	{"jdb", "https://docs.oracle.com/en/java/javase/21/docs/specs/man/jdb.html", ".jdbrc jdb.ini", ""},

	// C, Rust, Go and native debuggers.
	{"gdb", "https://sourceware.org/gdb/current/onlinedocs/gdb.html/Init-File-in-the-Current-Directory.html", ".gdbinit .gdbearlyinit *-gdb.py *-gdb.gdb *-gdb.scm", ""},
	{"lldb", "https://lldb.llvm.org/man/lldb.html", ".lldbinit .lldbinit-*", ""},
	{"clangd", "https://clangd.llvm.org/config", ".clangd", "compile_commands.json compile_flags.txt"},
	{"CMake", "https://cmake.org/cmake/help/latest/manual/cmake-presets.7.html", "", "CMakeLists.txt CMakePresets.json CMakeUserPresets.json"},
	{"make", "https://www.gnu.org/software/make/manual/", "", "Makefile GNUmakefile *.mk justfile Taskfile.yml Taskfile.yaml"},
	{"Meson", "https://mesonbuild.com/", "", "meson.build"},
	{"Cargo", "https://doc.rust-lang.org/cargo/reference/config.html", ".cargo/", "Cargo.toml build.rs"},
	{"rustup", "https://rust-lang.github.io/rustup/overrides.html#the-toolchain-file", "rust-toolchain rust-toolchain.toml", ""},
	{"golangci-lint", "https://golangci-lint.run/docs/plugins/go-plugins/", ".golangci.* .custom-gcl.yml", ""},
	{"Bazel", "https://bazel.build/run/bazelrc", ".bazelrc user.bazelrc .bazeliskrc tools/bazel", ".bazelversion"},
	{"Buck", "https://buck2.build/docs/concepts/buckconfig/", ".buckconfig .buckconfig.local .buckconfig.d/", ""},
	{"Pants", "https://www.pantsbuild.org/stable/docs/using-pants/key-concepts/options", ".pants.rc .pants.bootstrap", "pants.toml"},
	{"Please", "https://please.build/config.html", ".plzconfig*", ""},
	{"a formatter", "https://treefmt.com/latest/getting-started/configure/", "treefmt.toml .treefmt.toml .trunk/", ""},
	{"latexmk", "https://ctan.org/pkg/latexmk", ".latexmkrc latexmkrc", ""},

	// .NET, Apple, Dart.
	{"MSBuild", "https://learn.microsoft.com/visualstudio/msbuild/customize-by-directory", "Directory.Build.props Directory.Build.targets Directory.Build.rsp Directory.Solution.props Directory.Solution.targets MSBuild.rsp", "Directory.Packages.props *.csproj *.fsproj *.vbproj *.vcxproj global.json .config/dotnet-tools.json"},
	{"NuGet", "https://learn.microsoft.com/nuget/reference/nuget-config-file", "nuget.config", ""},
	{"OmniSharp", "https://github.com/OmniSharp/omnisharp-roslyn/wiki/Configuration-Options", "omnisharp.json", ""},
	{"Xcode", "https://developer.apple.com/documentation/xcode", ".xcode.env .xcode.env.local", "*.xcodeproj/ *.xcworkspace/"},
	{"Swift's package manager", "https://docs.swift.org/package-manager/", ".swiftpm/", "Package.swift"},
	{"FVM", "https://fvm.app/documentation/getting-started/configuration", ".fvm/ .fvmrc", ""},
	{"Dart", "https://dart.dev/tools/analysis", ".dart_tool/", "pubspec.yaml analysis_options.yaml"},

	// R, Julia, functional languages, Lua.
	{"R", "https://stat.ethz.ch/R-manual/R-devel/library/base/html/Startup.html", ".Rprofile .Renviron .RData renv/activate.R", "*.Rproj"},
	{"lintr", "https://lintr.r-lib.org/articles/lintr.html", ".lintr .lintr.R", ""},
	{"Julia", "https://pkgdocs.julialang.org/v1/toml-files/", "LocalPreferences.toml JuliaLocalPreferences.toml", ""},
	{"MATLAB", "https://www.mathworks.com/help/matlab/ref/startup.html", "startup.m .octaverc", ""},
	{"GHCi", "https://downloads.haskell.org/ghc/latest/docs/users_guide/ghci.html#the-ghci-files", ".ghci", ""},
	{"Haskell's language server", "https://github.com/haskell/hie-bios#bios", "hie.yaml", "cabal.project* stack.yaml Setup.hs"},
	{"OCaml", "https://ocaml.org/manual/toplevel.html", ".ocamlinit .merlin", "dune dune-project"},
	{"Elixir", "https://hexdocs.pm/iex/IEx.html#module-the-iex-exs-file", ".iex.exs .formatter.exs .credo.exs", "mix.exs"},
	{"Erlang", "https://www.erlang.org/doc/apps/erts/erl_cmd.html", ".erlang", "rebar.config rebar.config.script"},
	{"Lua's tools", "https://luals.github.io/wiki/configuration/", ".luarc.json .luarc.jsonc .luarc.lua .luacheckrc .lua-format .luarocks/", ""},

	// Infrastructure.
	{"Terraform", "https://developer.hashicorp.com/terraform/cli/config/config-file", ".terraform/ .terraformrc terraform.rc", ".terraform.lock.hcl terragrunt.hcl"},
	{"TFLint", "https://github.com/terraform-linters/tflint/blob/master/docs/user-guide/config.md", ".tflint.hcl .tflint.d/", ""},
	{"Ansible", "https://docs.ansible.com/ansible/latest/reference_appendices/config.html", "ansible.cfg .ansible.cfg .ansible/", ""},
	{"Vagrant", "https://developer.hashicorp.com/vagrant/docs/other/environmental-variables", ".vagrant/", ""},
	{"Compose", "https://docs.docker.com/reference/compose-file/", "", "compose.yaml compose.yml compose.override.* docker-compose*.yml docker-compose*.yaml"},
	{"Pulumi", "https://www.pulumi.com/docs/iac/concepts/projects/project-file/", "", "Pulumi.yaml Tiltfile skaffold.yaml"},
}

// pattern is one of the table, with its names folded.
type pattern struct {
	tool    string
	refused bool
	names   []string // but for the last one
	before  string   // the last name: what stands before its asterisk, and behind it
	behind  string
	star    bool
	dir     bool // what lies below it belongs to it
}

func (p *pattern) matches(last string) bool {
	if !p.star {
		return last == p.before
	}
	return len(last) >= len(p.before)+len(p.behind) && strings.HasPrefix(last, p.before) && strings.HasSuffix(last, p.behind)
}

// index has the patterns by their first name, and those whose first name has an asterisk apart.
var index = sync.OnceValues(func() (map[string][]*pattern, []*pattern) {
	byName := map[string][]*pattern{}
	var stars []*pattern
	add := func(tool, list string, refused bool) {
		for _, s := range strings.Fields(list) {
			p := &pattern{tool: tool, refused: refused}
			s, p.dir = strings.CutSuffix(fold(s), "/")
			p.names = strings.Split(s, "/")
			last := len(p.names) - 1
			p.before, p.behind, p.star = strings.Cut(p.names[last], "*")
			p.names = p.names[:last]
			switch {
			case last > 0:
				byName[p.names[0]] = append(byName[p.names[0]], p)
			case p.star:
				stars = append(stars, p)
			default:
				byName[p.before] = append(byName[p.before], p)
			}
		}
	}
	for _, t := range Table {
		add(t.Name, t.Runs, true)
		add(t.Name, t.Marks, false)
	}
	return byName, stars
})

// Obeyed names the tool that runs or obeys what stands at the path, or "" for none, and says whether that is refused
// rather than marked.
func Obeyed(p string) (tool string, refused bool) {
	byName, stars := index()
	names := strings.Split(p, "/")
	for i := range names {
		names[i] = fold(names[i])
	}
	for i, name := range names {
		for _, list := range [][]*pattern{byName[name], stars} {
			for _, q := range list {
				if end := i + len(q.names); end < len(names) && (end == len(names)-1 || q.dir) && !refused &&
					sameNames(names[i:end], q.names) && q.matches(names[end]) {
					tool, refused = q.tool, q.refused
				}
			}
		}
	}
	return tool, refused
}

func sameNames(a, b []string) bool {
	for i := range b {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
