"""Who arrives when and with how many tokens: everything is drawn before the clock starts (`build.build`)."""
