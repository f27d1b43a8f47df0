//! `fgrpo maze show`: draw a maze, its target and its tokens.

use fgrpo_core::maze::{self, Split, tokens};

/// Draw a maze, its target and its tokens.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Draw a maze, its target and its tokens.
    #[command(after_help = "Example:\n  fgrpo maze show --size 17 --seed 0 --index 3")]
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Number of cells along an edge: an odd number of at least 5.
    #[arg(long, default_value_t = 17)]
    size: usize,
    /// Seed of the mazes (`task.seed` of a configuration).
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Index of the maze in its split.
    #[arg(long, default_value_t = 0)]
    index: u64,
    /// Draw a held-out maze instead of a training maze.
    #[arg(long)]
    held_out: bool,
    /// Print one JSON object instead of a drawing.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Command::Show(args) = &args.command;
    if !maze::valid_size(args.size) {
        bad_input!("--size: expected {}, found {}", maze::VALID_SIZES, args.size);
    }
    if args.index >= Split::LEN {
        bad_input!("--index: expected a number below {}, found {}", Split::LEN, args.index);
    }
    let split = if args.held_out { Split::HeldOut } else { Split::Train };
    let maze = maze::generate(args.size, args.seed, split.index(args.index));
    let moves = maze.solve().expect("a generated maze is a tree, so a path leads to its goal");
    let (prompt, target) = (tokens::prompt(&maze), tokens::completion(&moves));
    let drawing = maze.ascii(&maze.walk(&moves));
    if args.json {
        let json = serde_json::json!({
            "size": args.size, "seed": args.seed, "index": args.index, "split": if args.held_out { "held-out" } else { "train" },
            "drawing": drawing, "moves": moves.len(), "prompt": prompt, "target": target,
            "target_text": tokens::spell(&target),
        });
        outln!("{json}");
    } else {
        outln!("{drawing}");
        outln!("target ({} moves): {}", moves.len(), tokens::spell(&target));
        outln!("prompt ({} tokens): {}", prompt.len(), tokens::spell(&prompt));
    }
    Ok(())
}
