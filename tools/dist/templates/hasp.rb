class Hasp < Formula
  desc "Distributed locks for commands and Go programs, on the store you have"
  homepage "https://github.com/hasplock/hasp"
  version "{{.Version}}"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/hasplock/hasp/releases/download/v{{.Version}}/hasp_{{.Version}}_darwin_arm64.tar.gz"
      sha256 "{{sum "darwin_arm64.tar.gz"}}"
    end
    on_intel do
      url "https://github.com/hasplock/hasp/releases/download/v{{.Version}}/hasp_{{.Version}}_darwin_amd64.tar.gz"
      sha256 "{{sum "darwin_amd64.tar.gz"}}"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/hasplock/hasp/releases/download/v{{.Version}}/hasp_{{.Version}}_linux_arm64.tar.gz"
      sha256 "{{sum "linux_arm64.tar.gz"}}"
    end
    on_intel do
      url "https://github.com/hasplock/hasp/releases/download/v{{.Version}}/hasp_{{.Version}}_linux_amd64.tar.gz"
      sha256 "{{sum "linux_amd64.tar.gz"}}"
    end
  end

  def install
    bin.install "hasp"
    man1.install Dir["man/*.1"]
    bash_completion.install "completion/hasp.bash" => "hasp"
    zsh_completion.install "completion/_hasp"
    fish_completion.install "completion/hasp.fish"
  end

  test do
    assert_equal "held\n", shell_output("#{bin}/hasp --store sqlite:#{testpath}/locks.db run key -- echo held")
  end
end
