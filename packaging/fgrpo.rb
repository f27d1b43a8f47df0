# Homebrew formula: brew install --HEAD packaging/fgrpo.rb
class Fgrpo < Formula
  desc "Group-relative reinforcement learning from verifiable rewards"
  homepage "https://github.com/fgrpo/fgrpo"
  license any_of: ["MIT", "Apache-2.0"]
  head "https://github.com/fgrpo/fgrpo.git", branch: "main"

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args(path: "crates/cli")
    generate_completions_from_executable(bin/"fgrpo", "completions")
  end

  test do
    assert_match "correct", pipe_output("#{bin}/fgrpo verify choice -", '{"gold": "B", "response": "\\\\boxed{B}"}')
  end
end
